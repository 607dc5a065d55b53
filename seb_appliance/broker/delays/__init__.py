"""Delayed records: asked for, known, handed out when they are due, forgotten."""
