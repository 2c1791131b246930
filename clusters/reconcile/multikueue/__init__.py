"""What the shifts of a manager share, whether the portal dispatches there or a Kueue.

``controller`` is the part of their loop that is the same. ``workers`` keeps a ``link`` to each
worker, with a cache of what is there, or a way in by ``profiles``. ``local`` reads who
dispatches to whom, and the manager's side of a workload; ``group`` is all that a decision looks
at; ``copies`` carries out what is done on a worker.
``nominating`` holds the dispatcher in force with its trail of rounds and the workers'
``offers``. Kinds of jobs are in ``clusters.jobs``.
"""
