"""Which workloads have to go, with and without fair sharing."""
