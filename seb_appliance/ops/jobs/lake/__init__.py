"""The keeper of lake tables, and the process that writes them."""
