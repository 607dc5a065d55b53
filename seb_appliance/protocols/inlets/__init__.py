"""Inlets: `POST /v1/inlets/{inlet}` for senders that cannot carry an API key, such as webhooks."""
