"""Exports and the rows that they are made of."""
