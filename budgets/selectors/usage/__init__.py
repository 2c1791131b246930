"""Usage as pages and files read it."""
