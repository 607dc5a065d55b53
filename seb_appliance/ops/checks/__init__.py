"""Checks: `seb doctor` of this machine and its bucket, `seb fsck` of a bucket against its log."""
