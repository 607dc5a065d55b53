"""Routes of work queues."""
