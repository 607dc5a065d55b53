"""The journal: both fencing modes, claims, retries, reading entries."""
