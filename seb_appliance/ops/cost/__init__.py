"""What the bucket costs: prices, usage, the month's forecast, keeping to a budget."""
