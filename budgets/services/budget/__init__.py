"""Budgets: revised, held, in force."""
