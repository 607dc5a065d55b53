"""Where the rooms are joined: `process.py` runs `seb serve`, `assembly.py` joins the parts."""
