"""What several jobs do, or one in many parts."""
