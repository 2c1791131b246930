"""The fleet's promises and capacities."""
