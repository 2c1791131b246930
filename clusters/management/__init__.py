"""Management commands of the enforcement side."""
