"""Syslog (RFC 5424) over TCP, TLS and UDP; off unless `syslog_listen` is set."""
