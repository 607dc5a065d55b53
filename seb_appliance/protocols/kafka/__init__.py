"""The Kafka protocol; off unless `kafka_port` is set."""
