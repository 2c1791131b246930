"""What the shifts know about kinds of jobs: ``batch`` is the Job, ``adapters`` are all others.

Documents are plain dicts and functions are pure; only ``writer`` talks to a cluster.
"""
