"""Enforcement: clusters, what they carry, and who decides there."""
