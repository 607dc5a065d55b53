"""What the protocols with a port of their own share."""
