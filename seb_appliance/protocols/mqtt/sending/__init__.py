"""What a client is sent: live, from the log, retained, or shared with others."""
