"""The runtime of roles, part by part; no cluster is needed."""
