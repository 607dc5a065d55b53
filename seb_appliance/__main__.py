"""`python -m seb_appliance` is `seb`."""

from seb_appliance.cli import main

if __name__ == "__main__":
    main()
