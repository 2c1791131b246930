"""Makes a cluster forget its past, so that old resource versions answer 410 Gone.

The API server keeps recent events in memory and etcd five minutes of history; a test that wants a
410 now cannot wait for either.
"""

from __future__ import annotations

import json

import urllib3

from .control_plane import ControlPlane
from .processes import LOOPBACK


def forget_history(cluster: ControlPlane) -> None:
    """Compact etcd at its present revision and restart the API server with an empty watch cache.

    Lists and watches from an earlier resourceVersion, and continue tokens of earlier lists, get 410
    afterwards. Open watches break, as over any restart.
    """
    base = f"http://{LOOPBACK}:{cluster.etcd_port}/v3"
    with urllib3.PoolManager(retries=False, timeout=10) as etcd:
        asked = etcd.request("POST", f"{base}/kv/range", json={"key": "AA==", "limit": 1})
        revision = json.loads(asked.data)["header"]["revision"]
        cluster.kill_api_server()
        compaction = {"revision": revision, "physical": True}
        answer = etcd.request("POST", f"{base}/kv/compaction", json=compaction)
        if answer.status != 200:
            raise RuntimeError(f"etcd did not compact: {answer.status} {answer.data!r}")
    cluster.start_api_server()
