"""Records: appended, read, followed live, in transactions, by record key."""
