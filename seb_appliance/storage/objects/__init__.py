"""Objects of records: merging, compaction, verified sections, the disk cache."""
