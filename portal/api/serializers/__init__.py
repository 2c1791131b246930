"""Shapes of the API: strict input that the services check, and output read from models.

No output carries a secret; what a role may not see does not reach it, because every view reads
through a selector.
"""
