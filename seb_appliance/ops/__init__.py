"""Running an appliance: serving, background jobs, the host, checks, cost."""
