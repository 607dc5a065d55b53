"""The machine of an appliance: data directory, logs, passwords, stores by address."""
