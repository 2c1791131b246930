"""Dispatch of a workload over workers."""
