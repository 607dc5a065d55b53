"""Kafka messages: bytes in, dictionaries out, and back."""
