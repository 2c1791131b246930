"""What was promised, used and owed."""
