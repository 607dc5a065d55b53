"""Upkeep: retention, merging, compaction, adopting objects."""
