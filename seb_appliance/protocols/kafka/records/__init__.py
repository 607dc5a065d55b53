"""Kafka's record batches (magic 2): bytes in, new records out, and stored records as bytes."""
