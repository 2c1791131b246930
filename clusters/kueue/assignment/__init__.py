"""Which flavors a workload gets, or why none."""
