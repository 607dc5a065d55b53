"""Reads: the index of sections, decoded sections, waiting readers, live followers."""
