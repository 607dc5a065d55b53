"""For operators: topics, API keys, status, cost, audit, compactions."""
