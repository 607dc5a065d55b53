"""The HTTP API: parse, authorize, call the broker, encode. No logic of its own."""
