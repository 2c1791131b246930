"""Questions to an engine: why, what if, how much."""
