"""The APIs of Kafka: a function for each, which `requests.handles` registers."""
