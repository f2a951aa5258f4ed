"""How fast the service is, and what it holds up to."""
