"""The file of definitions (`seb apply`): read, compared with an appliance, and applied."""
