"""Topics, groups and API keys as a file, and making an appliance so: for `seb apply`."""
