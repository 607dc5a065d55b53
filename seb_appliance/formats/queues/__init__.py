"""Work queues in the journal."""
