"""Commands of work queues."""
