"""Windows of maintenance and what they stop."""
