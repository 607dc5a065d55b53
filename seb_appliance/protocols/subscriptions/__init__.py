"""Subscriptions: queues whose worker is the appliance, which sends their records to a URL."""
