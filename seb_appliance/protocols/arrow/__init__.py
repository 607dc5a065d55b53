"""Records as Arrow streams."""
