"""Lake tables: what the journal stores of them, and what people write about them."""
