"""MQTT 3.1.1 and 5 over TCP and TLS; off unless `mqtt_port` is set."""
