"""Checking: does the bucket hold, whole and sound, what its log says? Reads, and changes nothing.

Only what is derived (files of this machine) is ever written, and only by `local_files.repair`.
"""
