"""Commands for what protocols bring: inlets, and connections to their ports."""
