"""The log: window, sequencer, topics, API keys, reads, waiting. Knows no HTTP, no SQL, no S3."""
