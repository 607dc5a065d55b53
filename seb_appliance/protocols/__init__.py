"""Protocols and formats of others, each in one folder."""
