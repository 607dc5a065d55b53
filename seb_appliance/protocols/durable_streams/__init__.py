"""The Durable Streams protocol, version 1.0, at `/v1/stream/{path}`."""
