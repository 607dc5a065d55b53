"""Consumer groups: committed offsets, lag, leases, resets."""
