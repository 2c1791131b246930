"""What the shifts know about kinds of jobs; batch/v1 Job is the first of them.

Documents are plain dicts and functions are pure; only ``writer`` talks to a cluster.
"""
