"""Background jobs: loops, and the child processes that tidy and check."""
