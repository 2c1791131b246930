"""Clusters with the portal's roles at work, where strangers write and others have to go on.

``portal``: the portal decides and dispatches; admission and dispatch are shifts in threads, as they
run for real, usage is turned by hand, because it has the test's database. ``beside``: a Kueue
decides, of which there are only the statuses; the external dispatcher with its guard is a shift,
the shadow, the budget check and usage are turned by hand.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from clusters.errors import AlreadyExists, NotFound
from clusters.jobs.workloads import made_name_of
from clusters.kube import resources as r
from clusters.kube.client import KubeClient, Selection, WriteOptions
from clusters.kube.pulse import Pulse
from clusters.kueue.multikueue.dispatchers import CHEAPEST_FIT
from clusters.manifests.names import SPEND_CHECK, spend_controller
from clusters.models import WorkloadState
from clusters.reconcile.admission import AdmissionBody
from clusters.reconcile.context import Clients, Registered, ShiftContext
from clusters.reconcile.dispatch import DispatchBody
from clusters.reconcile.explained.reporter import evidence_of
from clusters.reconcile.external import ExternalBody
from clusters.reconcile.runtime.controller import Controller
from clusters.reconcile.shadow.body import ShadowBody
from tests.builders import SmallFleet, line
from tests.controlplane.control_plane import ControlPlane
from tests.fuzz.hostile import NAMESPACES
from tests.fuzz.stream import INTEGRATIONS
from tests.reconcile.admission_harness import (
    CHECK,
    INSTALLATION,
    NS,
    Document,
    Embedded,
    Place,
    facts,
    is_true,
    job,
    kueue,
    limited,
    multikueue_objects,
    quota_objects,
)
from tests.reconcile.fleet_rows import register
from tests.reconcile.spend_hand import SpendHand, spend_hand
from tests.reconcile.usage_hand import UsageHand, usage_hand
from tests.resources import resource_of
from tests.waiting import PATIENCE_S

GOOD_S = 5.0
"""Within so many seconds a sound job is admitted, whatever was written before."""
CONFIGURATION = {"integrations": {"frameworks": list(INTEGRATIONS)}}
_AT = "2026-03-01T11:00:00Z"
_STATUS = WriteOptions(field_manager="kueue", subresource="status")
_PAUSE_S = 0.01
_PLENTY = 10_000
"""GPUs of the sound namespace: nobody there waits for what garbage collection gives back."""


class Stuck(AssertionError):
    """A sound job did not get what it should within its time."""


class Ground(Protocol):
    """Where somebody writes, and what has to go on there."""

    places: list[Place]

    def check(self) -> None:
        """No shift has ended; raises what ended one."""

    def turn(self) -> None:
        """Let the roles that are turned by hand work."""

    def begin(self) -> None:
        """Wait until every role works, which a first sound job shows."""

    def good(self, number: int) -> dict[str, float]:
        """Bring sound objects through each role; the seconds that each took."""

    def parked(self) -> dict[str, str]:
        """By role: the newest that is set aside; roles without any are left out."""

    def parked_count(self) -> int:
        """How many are set aside, in all roles."""


class Real(Embedded):
    """The same places on real API servers, by the names that the embedded ones have."""

    def __init__(self, planes: Mapping[str, ControlPlane]) -> None:
        super().__init__()
        self._planes = planes

    def __enter__(self) -> Real:
        for name, plane in self._planes.items():
            text = plane.admin_kubeconfig.read_text()
            client = self._stack.enter_context(KubeClient.from_kubeconfig(text))
            self.places[name] = Place(name, client, text)
        return self


def ensure(place: Place, *documents: Document) -> None:
    """Create what is not there yet."""
    for document in documents:
        try:
            place.client.create(resource_of(document), document)
        except AlreadyExists:
            continue


def _everybody(gpus: int, **spec: Any) -> list[Document]:
    """Quota of the sound namespace, and of the strangers'."""
    strangers = (item for name in NAMESPACES for item in quota_objects(4, namespace=name, **spec))
    return [*quota_objects(gpus, **spec), *strangers]


@dataclass
class _Base:
    """What both grounds have: shifts whose bodies can be looked into, and roles by hand."""

    world: Embedded
    places: list[Place]
    bodies: dict[str, Controller[Any]] = field(default_factory=dict)
    by_hand: list[tuple[str, Callable[[], None]]] = field(default_factory=list)
    slowest: dict[str, float] = field(default_factory=dict)
    patience_s: float = GOOD_S

    def good(self, number: int) -> dict[str, float]:
        raise NotImplementedError

    def begin(self) -> None:
        self.patience_s = PATIENCE_S
        self.good(0)
        self.patience_s = GOOD_S

    def body(self, name: str, kind: Callable[[ShiftContext], Any]) -> Callable[..., Any]:
        """Makes a shift's body and keeps it under a name."""

        def make(context: ShiftContext) -> Any:
            made = kind(context)
            self.bodies[name] = made
            return made

        return make

    def check(self) -> None:
        for shift in self.world.shifts:
            if shift.error is not None:
                raise shift.error
            assert not shift.is_over

    def turn(self) -> None:
        for name, turn in self.by_hand:
            begun = time.monotonic()
            turn()
            took = time.monotonic() - begun
            self.slowest[name] = max(took, self.slowest.get(name, 0.0))

    def parked(self) -> dict[str, str]:
        found = {name: body.faults.standing.says for name, body in self.bodies.items()}
        return {name: says for name, says in found.items() if says}

    def parked_count(self) -> int:
        return sum(body.faults.standing.parked for body in self.bodies.values())

    def _shown(self) -> str:
        """What there is of the sound namespace, for a failure."""
        found = [
            (place.name, item["metadata"]["name"], item.get("status"), item["spec"].get("suspend"))
            for place in self.places
            for kind in (r.JOB, r.WORKLOAD)
            for item in place.client.list(kind, Selection(namespace=NS)).items
        ]
        queues = {name: body.queue.load for name, body in self.bodies.items()}
        return f"set aside: {self.parked()}; under way: {queues}; there: {found}"

    def within(self, what: str, holds: Callable[[], bool], *, begun: float) -> float:
        """Seconds until it was so, of those that it may take.

        Raises:
            Stuck: it took longer.
        """
        while True:
            self.check()
            self.turn()
            try:
                if holds():
                    return time.monotonic() - begun
            except NotFound:
                pass
            if time.monotonic() - begun > self.patience_s:
                raise Stuck(f"{what} not within {self.patience_s:g} s; {self._shown()}")
            time.sleep(_PAUSE_S)


def _sound_job(name: str, *, managed: bool = False) -> Document:
    return limited(job(name, run_s=600, managed=managed))


class Portal(_Base):
    """The portal decides on a manager and a worker; see :func:`portal`."""

    def good(self, number: int) -> dict[str, float]:
        manager, worker = self.world["manager"], self.world["w1"]
        begun, name = time.monotonic(), f"good-{number}"
        made = manager.client.create(r.JOB, _sound_job(name, managed=True))
        own = worker.client.create(r.JOB, _sound_job(f"own-{number}"))
        workload = made_name_of(made)
        took = {
            "admitted": self.within("own job", _is_admitted(worker, made_name_of(own)), begun=begun)
        }
        is_dispatched = _is_admitted(manager, workload)
        took["dispatched"] = self.within("dispatched job", is_dispatched, begun=begun)
        seen = WorkloadState.objects.filter(name=workload)
        took["usage"] = self.within("use of the job", seen.exists, begun=begun)
        for place, document in ((manager, made), (worker, own)):
            place.client.delete(r.JOB, document["metadata"]["name"], namespace=NS)
        return took


def _is_admitted(place: Place, workload: str) -> Callable[[], bool]:
    return lambda: is_true(place.client.get(r.WORKLOAD, workload, namespace=NS), "Admitted")


@contextmanager
def portal(world: Embedded, fleet: SmallFleet) -> Iterator[Portal]:
    """Admission on a manager and a worker, dispatch between them, and usage on the manager."""
    with world, ExitStack() as stack:
        manager, worker = world["manager"], world["w1"]
        ensure(manager, *multikueue_objects("w1"), *_everybody(_PLENTY, check=True))
        ensure(worker, *_everybody(_PLENTY))
        ground = Portal(world, [manager, worker])
        for name in ("manager", "w1"):
            body = ground.body(f"admission on {name}", AdmissionBody)
            world.start(name, "admission", body=body, kueue_configuration=CONFIGURATION)
        world.start(
            "manager", "dispatch", workers=("w1",), body=ground.body("dispatch", DispatchBody),
            kueue_configuration=CONFIGURATION,
        )  # fmt: skip
        _usage(ground, stack, "gpu-manager", manager)
        yield ground


def _usage(ground: _Base, stack: ExitStack, slug: str, place: Place) -> UsageHand:
    register(slug, place.kubeconfig, role="manager")
    hand = stack.enter_context(usage_hand(slug))
    ground.bodies["usage"] = hand.body
    ground.by_hand.append(("usage", hand.body.turn))
    return hand


@dataclass
class Heard:
    """A reporter for whom everything is always due, and who keeps the newest evidence."""

    evidence: dict[str, Document] = field(default_factory=dict)
    line: deque[str] = field(default_factory=deque)
    is_due: bool = True

    def start(self) -> None:
        """Nothing is to be begun."""

    def close(self) -> None:
        """Nothing is left."""

    def answer_one(self, *about: Any, **more: Any) -> bool:
        return False

    def show_shares(self, *about: Any, **more: Any) -> None:
        """Nobody looks."""

    def report(self, comparison: object) -> None:
        """Kept by nobody."""

    def tell(self, waiting: Any, explain: Any, documents: Any, *, now: Any) -> None:
        for key in waiting:
            found = explain(key)
            if found is not None:
                self.evidence[key] = evidence_of(found, documents[key])


class Beside(_Base):
    """Beside a Kueue; see :func:`beside`."""

    heard: Heard

    def good(self, number: int) -> dict[str, float]:
        manager, begun = self.world["manager"], time.monotonic()
        names = {what: f"{what}-{number}" for what in ("nominated", "waiting", "asking")}
        for what, name in names.items():
            pod_set = {"name": "main", "count": 1, "template": _sound_job(name)["spec"]["template"]}
            spec = {"active": True, "queueName": "default", "podSets": [pod_set]}
            manager.create(kueue("Workload", name, spec, NS))
            check = {"nominated": CHECK, "asking": SPEND_CHECK}.get(what)
            if check:
                entry = {
                    "name": check,
                    "state": "Pending",
                    "message": "",
                    "lastTransitionTime": _AT,
                }
                status = {"conditions": [_reserved()], "admissionChecks": [entry]}
                manager.client.patch(
                    r.WORKLOAD, name, {"status": status}, namespace=NS, options=_STATUS
                )
        get = lambda name: manager.client.get(r.WORKLOAD, name, namespace=NS)["status"]  # noqa: E731
        took = {
            "nominated": self.within(
                "nomination", lambda: bool(get(names["nominated"]).get("nominatedClusterNames")),
                begun=begun,
            ),
            "explained": self.within(
                "reason", lambda: f"{NS}/{names['waiting']}" in self.heard.evidence, begun=begun
            ),
            "answered": self.within(
                "answer of the budget check",
                lambda: get(names["asking"])["admissionChecks"][0]["state"] == "Ready",
                begun=begun,
            ),
            "usage": self.within(
                "use of the job",
                WorkloadState.objects.filter(name=names["waiting"]).exists, begun=begun,
            ),
        }  # fmt: skip
        for name in names.values():
            manager.client.delete(r.WORKLOAD, name, namespace=NS)
        return took


def _reserved() -> Document:
    return {
        "type": "QuotaReserved", "status": "True", "reason": "R", "message": "",
        "lastTransitionTime": _AT,
    }  # fmt: skip


@contextmanager
def beside(world: Embedded, fleet: SmallFleet) -> Iterator[Beside]:
    """External dispatch with its guard, the shadow, the budget check and usage, beside a Kueue."""
    fleet.revise(fleet.vision, line("h100", 8, 24))
    with world, ExitStack() as stack:
        manager, worker = world["manager"], world["w1"]
        spend = kueue(
            "AdmissionCheck", SPEND_CHECK, {"controllerName": spend_controller(INSTALLATION)}
        )
        ensure(manager, spend, *multikueue_objects("w1"), *_everybody(0, check=True))
        ensure(worker, *_everybody(_PLENTY))
        active = {"type": "Active", "status": "True", "reason": "R", "message": "",
                  "lastTransitionTime": _AT}  # fmt: skip
        manager.client.patch(
            r.MULTIKUEUE_CLUSTER, "w1", {"status": {"conditions": [active]}}, options=_STATUS
        )
        ground = Beside(world, [manager, worker])
        configuration = CONFIGURATION | {"multiKueue": {"dispatcherName": CHEAPEST_FIT}}
        world.start(
            "manager", "dispatch", workers=("w1",), mode="kueue",
            body=ground.body("external", ExternalBody), kueue_configuration=configuration,
        )  # fmt: skip
        _usage(ground, stack, "gpu-manager", manager)
        _shadow(ground, stack, manager)
        at = facts("manager", is_manager=True)
        hand: SpendHand = stack.enter_context(spend_hand(manager.client, at))
        ground.bodies["budget check"] = hand.body
        ground.by_hand.append(("budget check", hand.body.turn))
        yield ground


def _shadow(ground: Beside, stack: ExitStack, place: Place) -> None:
    stop, clients = threading.Event(), Clients()
    context = ShiftContext(
        Registered(facts(place.name, mode="kueue", kueue_configuration=CONFIGURATION), b""),
        client=place.client,
        clients=clients,
        pulse=Pulse(place.client),
        stop=stop,
        fence=lambda: None,
        holder="test",
        role="shadow",
    )
    body = ShadowBody(context)
    ground.heard = body._reporter = Heard()
    stack.callback(clients.close)
    stack.callback(body.close)
    stack.callback(stop.set)
    body.open()
    body.tick_s = _PAUSE_S
    ground.bodies["shadow"] = body
    ground.by_hand.append(("shadow", body.turn))
