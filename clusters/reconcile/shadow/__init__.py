"""The shadow: an engine beside a Kueue that decides, which explains and is compared with it.

``events`` reads what a watched document says Kueue decided (pure), ``replay`` lets the engine
decide the same events (pure), ``compare`` says where the two differ (pure), ``episodes`` cuts the
stream of events where a tree of queues is at rest, ``body`` is the shift. Nothing is ever written
to the cluster.
"""
