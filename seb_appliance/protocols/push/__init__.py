"""Protocols of log shippers over HTTP: OTLP, Loki, Splunk HEC, and the Confluent REST proxy."""
