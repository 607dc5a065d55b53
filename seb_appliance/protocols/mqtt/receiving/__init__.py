"""What a client publishes: checked, and stored in its order."""
