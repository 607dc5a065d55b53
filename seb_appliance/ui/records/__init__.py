"""Records as the pages show them: rows, filters, searches and downloads."""
