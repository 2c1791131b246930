"""What a warm engine tells people: why workloads wait, and answers to what-if.

Used by every shift that has an engine: admission in ``portal`` mode, the shadow in ``kueue`` mode.
``reporter`` decides which rows are due, ``store`` is the thread between the shift and the database.
Nothing here writes to a cluster.
"""
