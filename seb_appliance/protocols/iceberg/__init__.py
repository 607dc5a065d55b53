"""A read-only Iceberg REST catalog of the lake tables, under `/iceberg`."""
