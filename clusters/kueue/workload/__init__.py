"""A Workload as the engine sees it: read, matched, summed up."""
