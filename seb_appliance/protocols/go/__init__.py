"""The Go broker's API and files: served, imported, exported."""
