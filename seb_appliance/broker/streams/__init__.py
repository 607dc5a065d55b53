"""Topics as streams of the Durable Streams protocol."""
