"""The index of record keys, a file of its own."""
