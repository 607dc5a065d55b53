"""Seb Appliance: an event broker that one person can run on a small VM and trust."""

__version__ = "0.1.0"
