"""Objects of a megabyte of the smallest parts take little of a shift, and hold up nobody else."""

from __future__ import annotations

import pytest

from clusters.documents.packed import Packed
from clusters.kube import resources as r
from clusters.kube.client import Selection
from clusters.reconcile.admission import AdmissionBody
from clusters.reconcile.context import ShiftContext
from tests.fuzz.grounds import GOOD_S, ensure
from tests.perf.bench_crowd import CROWDED, QUIET, _job
from tests.reconcile.admission_harness import GPU, Document, Embedded, job, quota_objects
from tests.waiting import eventually

COUNT = 3
TOLERATIONS = 40_000


def heavy(number: int) -> Document:
    """A Job of 0.8 MB, which takes some 13 MB once it is read."""
    document = job(f"heavy-{number}", namespace=CROWDED)
    spec = document["spec"]["template"]["spec"]
    spec["containers"][0]["resources"]["limits"] = {GPU: "1"}
    spec["tolerations"] = [{"operator": "Exists"}] * TOLERATIONS
    return document


@pytest.mark.embedded
def test_heavy_jobs_of_one_tenant_are_set_aside_and_slow_no_other():
    bodies: list[AdmissionBody] = []

    def body(context: ShiftContext) -> AdmissionBody:
        bodies.append(AdmissionBody(context))
        return bodies[-1]

    with Embedded("heavy", webhooks=True) as world:
        place = world["heavy"]
        for namespace in (CROWDED, QUIET):
            ensure(place, *quota_objects(64, namespace=namespace, cohort="acme"))
        shift = world.start("heavy", "admission", body=body)
        for number in range(COUNT):
            place.create(heavy(number))
        says = lambda: bodies[0].faults.standing  # noqa: E731
        eventually(lambda: says().parked == COUNT, why=lambda: str(says()))
        assert "characters, and 32,768 are read at most" in says().says
        assert max(_job(place.client, f"good-{number}") for number in range(3)) < 1000 * GOOD_S
        events = place.client.list(r.EVENT, Selection(namespace=CROWDED)).items
        assert any("32,768 are read at most" in event.get("message", "") for event in events)
        assert shift.error is None
        # What is heavy of their specs, and of those of their Workloads, is packed.
        kept = [*bodies[0].cache.of(r.JOB).values(), *bodies[0].cache.of(r.WORKLOAD).values()]
        packed = [item["spec"] for item in kept if isinstance(item["spec"], Packed)]
        assert len(packed) == 2 * COUNT
        for spec in packed:
            assert dict.__getitem__(spec, "template" if "template" in spec else "podSets") is None
