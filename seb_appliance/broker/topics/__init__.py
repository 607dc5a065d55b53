"""Topics: the catalog of all that is applied, settings, names, forks."""
