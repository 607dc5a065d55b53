"""The pages of topics and of their records."""
