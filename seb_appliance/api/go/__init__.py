"""The Go broker's own API, for clients that exist already."""
