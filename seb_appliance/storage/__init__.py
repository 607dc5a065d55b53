"""Bytes in the bucket: object stores, the journal in its two fencing modes, cache, snapshots.

Knows no HTTP and no SQL.
"""
