"""The commands of `seb`."""
