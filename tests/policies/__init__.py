"""The generated policies against real API servers: who tries what, and what becomes of it."""
