"""SQLite as a view of the journal: projection of entries, loading, checks. Knows no storage.

Everything in the file can be rebuilt from the bucket, so a doubtful file is never repaired: it is
moved aside and rebuilt.
"""
