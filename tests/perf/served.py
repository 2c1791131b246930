"""``python -m tests.perf.served FOLDER KIND NAME…``: embedded API servers in their own process.

Writes the kubeconfig of each into the folder, then ``ready.KIND``; serves until its input ends.
How many requests each has answered stands in ``requests.KIND``, twice a second. ``roomy`` are like
``good`` and have 25 nodes. All others are themselves but for one thing, and none sends more than
about a megabyte a second:

* ``endless``: lists of jobs and workloads have no end, and each megabyte makes 25 in memory;
* ``flood``: their watches tell of one new object after the other, some hundred a second;
* ``drip``: lists come a byte at a time.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from clusters.devcluster.cluster import ApiReply, ApiRequest, ClusterOptions, DevCluster
from clusters.devcluster.controllers import JobRunner, NodeShape, make_nodes
from clusters.devcluster.server import DevServer

GOOD, ROOMY, KINDS = "good", "roomy", ("endless", "flood", "drip")
CONCERNED = ("/jobs", "/workloads")
HEAVY = [[]] * 850
BOOKMARKS_S = 60.0
"""As often as a real API server tells them on a watch that is quiet."""
NODES = NodeShape(
    "h100-node",
    2,
    labels={"gpu.example.com/model": "h100"},
    resources={"nvidia.com/gpu": "8"},
)


class Hostile(DevCluster):
    """A cluster that answers as its kind does."""

    kind = GOOD
    requests = 0
    _count = itertools.count()

    def answer(self, request: ApiRequest) -> ApiReply:
        self.requests += 1
        is_list = request.method == "GET" and request.path.endswith(CONCERNED)
        is_watch = is_list and bool(request.query.get("watch"))
        if is_watch and self.kind == "flood":
            return ApiReply(200, lines=self._flood(request.path))
        if is_list and not is_watch and self.kind == "endless":
            time.sleep(0.25)
            return ApiReply(200, lines=(page for page in [self._page()]))
        if is_list and not is_watch and self.kind == "drip":
            return ApiReply(200, lines=self._drip())
        return super().answer(request)

    def _page(self) -> bytes:
        number = next(self._count)
        item = {"metadata": {"name": f"n{number}", "namespace": "x", "uid": "u"}, "x": HEAVY}
        metadata = {"resourceVersion": "1", "continue": str(number)}
        return json.dumps({"metadata": metadata, "items": [item] * 75}).encode()

    def _flood(self, path: str) -> Generator[bytes]:
        is_job = path.endswith("/jobs")
        for number in self._count:
            metadata = {"name": f"n{number}", "namespace": "x", "uid": f"u{number}"}
            metadata["resourceVersion"] = str(10**9 + number)
            types = ("batch/v1", "Job") if is_job else ("kueue.x-k8s.io/v1beta2", "Workload")
            document = {"apiVersion": types[0], "kind": types[1], "metadata": metadata}
            document["spec"] = {"x": "y" * 2_000}
            yield json.dumps({"type": "ADDED", "object": document}).encode() + b"\n"
            time.sleep(0.004)

    def _drip(self) -> Generator[bytes]:
        while True:
            yield b" "
            time.sleep(0.1)


def _note(path: Path, clusters: Sequence[Hostile]) -> None:
    """Write down what was answered, again and again."""
    draft = path.with_suffix(".draft")
    while True:
        draft.write_text(json.dumps({each.name: each.requests for each in clusters}))
        os.replace(draft, path)
        time.sleep(0.5)


def main(folder: Path, kind: str, names: list[str]) -> None:
    clusters: list[Hostile] = []
    is_good = kind in (GOOD, ROOMY)
    with ExitStack() as stack:
        for number, name in enumerate(names):
            cluster = Hostile(ClusterOptions(name=name, bookmark_every_s=BOOKMARKS_S))
            clusters.append(cluster)
            cluster.kind = GOOD if is_good else KINDS[number % len(KINDS)]
            if is_good:  # where there are no GPUs, no floor is put
                make_nodes(cluster, NODES if kind == GOOD else replace(NODES, count=25))
            server = stack.enter_context(DevServer(cluster))
            runner = JobRunner(cluster)
            runner.start()
            stack.callback(runner.stop)
            (folder / f"{name}.kubeconfig").write_text(server.kubeconfig)
        told = folder / f"requests.{kind}"
        threading.Thread(target=_note, args=(told, clusters), daemon=True).start()
        (folder / f"ready.{kind}").touch()
        sys.stdin.read()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
