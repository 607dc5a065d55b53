"""Load by MQTT, of an appliance and of another broker beside it."""
