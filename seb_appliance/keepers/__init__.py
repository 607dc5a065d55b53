"""What goes on beside the log: loops, and the processes that tidy and check."""
