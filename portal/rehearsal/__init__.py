"""One budget walked down the whole road; ``python -m portal.rehearsal`` is its process."""
