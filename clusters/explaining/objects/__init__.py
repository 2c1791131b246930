"""Why a job has no Workload, why its pods do not start, why a worker does not take it.

Each rule looks at the objects of one cluster as they are and says what is wrong in a clause, with
names and figures, and what to do about it. Pure: who read the objects is no business of this room.
"""

from clusters.explaining.objects.found import Objects, Trouble
from clusters.explaining.objects.sentences import looked_at

__all__ = ["Objects", "Trouble", "looked_at"]
