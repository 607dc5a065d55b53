"""Object stores: S3, a directory, memory; and what wraps or tests them."""
