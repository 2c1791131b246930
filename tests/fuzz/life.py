"""A stranger's deeds on a ground, and what has to hold meanwhile.

After every fiftieth deed, and after any fault, sound objects come through each role within their
time; no shift ends; memory stays under its bound.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import traceback
from collections import Counter, defaultdict, deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from clusters.documents.keys import place_of
from clusters.errors import AlreadyExists, ClusterError
from clusters.kube import resources as r
from clusters.kube.client import DeleteOptions, Selection, WriteOptions
from clusters.kube.resources import Resource
from tests.fuzz.grounds import Ground, Stuck
from tests.fuzz.hostile import NAMESPACES
from tests.fuzz.schemas import Node
from tests.fuzz.stream import Deed, deeds
from tests.reconcile.admission_harness import Document, Place

LOOK_EVERY = 50
ALIVE_MOST = 150
"""So many of the stranger's objects are there at once; the oldest go."""
MEMORY_MOST = 512 * 2**20
"""Bytes that the process may grow by: all roles of the ground, and embedded servers with it."""
_STATUS = WriteOptions(subresource="status")
_NOW = DeleteOptions(grace_period_s=0)
_FREE: Document = {"metadata": {"finalizers": None, "ownerReferences": None}}
Key = tuple[Resource, str, str]


@dataclass
class Life:
    """One life of a ground.

    Attributes:
        taken: Deeds that a server took, by kind and verb.
        refused: Reasons of refusals.
        seconds: The longest that sound objects took, by what they waited for.
        grown: Bytes by which the process was larger than at the beginning, at most.
    """

    ground: Ground
    seed: int
    schemas: Mapping[str, Node]
    taken: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, float] = field(default_factory=dict)
    looks: int = 0
    grown: int = 0
    faults: dict[str, str] = field(default_factory=dict)
    _there: dict[str, dict[Resource, list[tuple[str, str]]]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    _uids: dict[str, str] = field(default_factory=dict)
    _alive: deque[tuple[Place, Key]] = field(default_factory=deque)
    _last: deque[Deed] = field(default_factory=lambda: deque(maxlen=12))
    _parked: int = 0
    _begun: int = 0

    def live(self, count: int, *, first: int = 0) -> None:
        """So many deeds of the seed, from one on; raises what breaks a rule, with the deeds."""
        self.ground.begin()
        self.look()
        gc.collect()
        self._begun = memory()
        for deed in islice(deeds(self.seed, self.schemas), first, first + count):
            self._last.append(deed)
            self.do(deed)
            self.ground.turn()
            parked = self.ground.parked_count()
            if deed.number % LOOK_EVERY == LOOK_EVERY - 1 or parked > self._parked:
                self.look()
            self._parked = parked
            if deed.number % LOOK_EVERY == LOOK_EVERY // 2:
                self._survey()
        self.look()

    def _survey(self) -> None:
        """Workloads that were made for the stranger's jobs are written to, too."""
        for place in self.ground.places:
            self._there[place.name][r.WORKLOAD] = [
                place_of(item)
                for namespace in NAMESPACES
                for item in place.client.list(r.WORKLOAD, Selection(namespace=namespace)).items
            ]

    def look(self) -> None:
        """Everybody else goes on."""
        self.looks += 1
        self.faults |= self.ground.parked()
        try:
            self.ground.check()
            for what, took in self.ground.good(self.looks).items():
                self.seconds[what] = max(took, self.seconds.get(what, 0.0))
        except Exception as error:
            raise Stuck(f"{error}\n{self.story()}\n{stacks()}") from error
        if self._begun:
            self.grown = max(self.grown, memory() - self._begun)
        assert self.grown < MEMORY_MOST, f"{self.grown} bytes more\n{self.story()}"

    def do(self, deed: Deed) -> None:
        """One deed, on each cluster of the ground."""
        for place in self.ground.places:
            body = self._named(deed.body)
            try:
                self._write(place, deed, body)
            except ClusterError as error:
                self.refused[f"{deed.resource.kind} {error.reason}"] += 1
            else:
                self.taken[f"{deed.resource.kind} {deed.verb}"] += 1
        while len(self._alive) > ALIVE_MOST * len(self.ground.places):
            self._remove(*self._alive.popleft())

    def _target(self, place: Place, deed: Deed) -> tuple[str | None, str]:
        """Of what is there already, the portal's own too, one that the deed chooses."""
        there = self._there[place.name].get(deed.resource) or [(deed.namespace, deed.name)]
        namespace, name = there[deed.number % len(there)]
        return namespace or None, name

    def _write(self, place: Place, deed: Deed, body: Document) -> None:
        client, resource = place.client, deed.resource
        namespace, name = deed.namespace or None, deed.name
        if deed.verb != "create":
            namespace, name = self._target(place, deed)
        if deed.verb == "delete":
            client.delete(resource, name, namespace=namespace)
        elif deed.verb == "status":
            client.patch(resource, name, body, namespace=namespace, options=_STATUS)
        elif deed.verb == "change":
            client.patch(resource, name, body, namespace=namespace)
        else:
            body["metadata"] |= {"name": name, **({"namespace": namespace} if namespace else {})}
            with suppress(AlreadyExists):
                made = client.create(resource, body)
                self._uids[name] = made["metadata"]["uid"]
                self._alive.append((place, (resource, deed.namespace, name)))
                self._there[place.name].setdefault(resource, []).append((deed.namespace, name))

    def _remove(self, place: Place, key: Key) -> None:
        resource, namespace, name = key
        with suppress(ValueError):
            self._there[place.name][resource].remove((namespace, name))
        with suppress(ClusterError):
            place.client.patch(resource, name, _FREE, namespace=namespace or None)
            place.client.delete(resource, name, namespace=namespace or None, options=_NOW)

    def _named(self, node: Any) -> Any:
        """With the UIDs that are known by now."""
        if isinstance(node, dict):
            return {self._named(key): self._named(value) for key, value in node.items()}
        if isinstance(node, list):
            return [self._named(value) for value in node]
        if isinstance(node, str) and node.startswith("uid:"):
            return self._uids.get(node[4:], "none")
        return node

    def story(self) -> str:
        """What was done last, for a failure."""
        told = "\n".join(map(str, self._last))
        return f"seed {self.seed}; the last deeds:\n{told}\nset aside: {self.ground.parked()}"

    def report(self) -> str:
        """In figures."""
        slowest = ", ".join(f"{what} {took:.2f} s" for what, took in self.seconds.items())
        return (
            f"seed {self.seed}: {sum(self.taken.values())} taken, {sum(self.refused.values())} "
            f"refused, {self.looks} looks; slowest: {slowest}; {self.grown / 2**20:.0f} MiB more; "
            f"{len(self.faults)} roles set something aside"
        )


def memory() -> int:
    """Bytes of this process that are in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def stacks() -> str:
    """Where each thread is, for a failure."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    found = []
    for ident, frame in sys._current_frames().items():
        found.append(f"--- {names.get(ident)}\n{''.join(traceback.format_stack(frame)[-4:])}")
    return "\n".join(found)
