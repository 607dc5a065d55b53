"""Record keys: the key index, the newest record of a key, its history, views."""
