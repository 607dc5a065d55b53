"""Ranges of offsets are planned, and read by tasks."""
