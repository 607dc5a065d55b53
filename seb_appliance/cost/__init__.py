"""What the bucket costs: prices, what was used, the month's forecast, and keeping to a budget."""
