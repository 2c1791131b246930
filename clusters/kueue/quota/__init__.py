"""Quota: amounts, the tree of Cohorts and ClusterQueues, what it owns, lends and has left."""
