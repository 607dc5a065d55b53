"""Tables of the state file: what an entry changes in them, and how they are read."""
