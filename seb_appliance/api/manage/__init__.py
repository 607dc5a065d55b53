"""What operators ask of an appliance: topics, API keys, cost, status, snapshots, compactions."""
