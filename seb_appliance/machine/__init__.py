"""The machine an appliance stands on: its data directory, its stores, its log, its passwords."""
