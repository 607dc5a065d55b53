"""Work queues: what is out, what waits, what is done."""
