"""Access: API keys, grants, users of the admin page, tickets, the audit."""
