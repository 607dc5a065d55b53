"""Routes: a file for each part of the API."""
