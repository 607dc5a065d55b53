"""The process in which DuckDB runs the SQL of users."""
