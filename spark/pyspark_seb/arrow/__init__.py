"""Records as Arrow batches, and the formats of an answer and of a segment as these."""
