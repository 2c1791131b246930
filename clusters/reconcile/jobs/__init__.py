"""Alarms of the shifts."""
