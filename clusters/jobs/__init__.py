"""Kinds of jobs: what the portal knows of each, behind one protocol and in one table. Pure.

A room of its own, just above ``documents``: the engine reads the names of kinds here, the manifests
their rights, the shifts how they queue, start, run, end and are dispatched. Were the behaviour in
``reconcile`` and only names down here, each kind would be written twice. Nothing here talks to a
cluster: documents come in, values and bodies of writes go out.

``kind`` is the protocol, ``table`` has the rows. ``described`` is for kinds that a few paths
describe, of which ``rows`` has all; ``batch``, ``pods`` and ``leader_worker_sets`` have rules of
their own. ``workloads``, ``marking``, ``remote`` and ``counting`` are what kinds share.
"""
