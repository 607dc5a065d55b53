"""MQTT messages as records: which topic has them, reading them, and filters over them."""
