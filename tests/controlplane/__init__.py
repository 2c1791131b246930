"""Real Kubernetes control planes and a real Kueue on loopback, for tests, CI and developers.

* ``etcd/ kubernetes/ kueue/ kueue-0.18/ kwok/``: Go tool modules, pins only. To raise one, change
  its version in go.mod (Kubernetes: the staging modules' as well), then ``go mod tidy`` there.
  ``sigs.k8s.io/scheduler-library`` is not in the checksum database: its two lines come from Kueue's
  own go.sum and have to be in ours before ``go mod tidy``.
* ``build.py``: builds them into a cache; ``python -m tests.controlplane build``.
* ``control_plane.py``: one cluster, its faults and its Kueue; ``fleet.py``: manager and workers.
* ``fixtures.py``: clusters that a whole test session shares; ``queues.py``: plain queues and
  MultiKueue wiring; ``kwok_nodes.py``: nodes and what steers the pods on them; ``history.py``: 410.
* ``python -m tests.controlplane up --dir DIR``: a fleet to play with.

What surprised us, besides what the modules say themselves:

* A CRD whose conversion was just changed answers 429 "storage is (re)initializing" for a moment.
* Kueue ends at once when discovery does not show one of its kinds yet; Established is not enough.
* A Job whose pod runs for one second was Complete 2 to 3.5 s after it was created (2 cores).
* Every port is drawn at random between 20000 and 31999; etcd, the API server and Kueue's webhook
  keep theirs for the life of a ``ControlPlane``.
"""
