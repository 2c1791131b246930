"""Budgets: past, in force, promised, previewed."""
