"""The Go broker: its API, and its buckets to import from and export to."""
