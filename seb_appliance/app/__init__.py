"""Where the rooms are joined: `process.py` is what `seb serve` runs, `assembly.py` joins them."""
