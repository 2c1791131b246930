"""Where the pods of a workload run: topologies, nodes, and the domains that are chosen."""
