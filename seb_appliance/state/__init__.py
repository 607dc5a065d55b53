"""SQLite as a view of the journal: projection of entries, loading, checks. Knows no storage.

Whatever is in the file can be had again from the bucket, so a doubtful file is never repaired: it
is moved aside and rebuilt.
"""
