"""Writes: admission, the open window, one PUT in flight, acknowledgement."""
