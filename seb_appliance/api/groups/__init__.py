"""Consumer groups: reading on, committed offsets, leases, and what operators see of them."""
