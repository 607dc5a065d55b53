"""Consumer groups: reading, committed offsets, leases, resets."""
