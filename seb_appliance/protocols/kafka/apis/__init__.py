"""The APIs of Kafka: one function each, which `requests.handles` registers."""
