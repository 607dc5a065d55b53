"""Protocols and formats of other systems, each in one folder."""
