"""Lake tables: topics that are also tables in the bucket (docs/TABLES.md)."""
