"""CloudEvents 1.0 in HTTP: as requests and as answers."""
