"""Recovery: opening a bucket, replay, snapshots, standby, copies."""
