"""Rows written many at once: streamed on PostgreSQL, as statements elsewhere, the same in both."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from budgets.models import Interval, PendingSpan
from budgets.models.reading import read_rows
from budgets.services.usage import rows as writing
from budgets.services.usage.rows import among, write_rows
from clusters.models import WorkloadState
from tests.builders import START, SmallFleet
from tests.reconcile.fleet_rows import register

PENDING_KEY = ("cluster", "uid", "start")
PENDING_CHANGING = ("end", "gpus", "workspace_id", "namespace", "workload", "requeued")
AWKWARD = ("plain", "tab\there", "line\nbreak\r", "back\\slash \\N \\.", "ümläut ☃", "\\", "", " ")


def spans(fleet: SmallFleet, *, gpus: int) -> list[tuple[object, ...]]:
    return [
        ("east", f"u{nth}", START, None if nth % 2 else START + timedelta(hours=1), gpus + nth,
         None if nth % 3 else fleet.vision.pk, "ns", name, bool(nth % 2))
        for nth, name in enumerate(AWKWARD)
    ]  # fmt: skip


def stored() -> list[tuple[object, ...]]:
    return list(PendingSpan.objects.order_by("uid").values_list(*PENDING_KEY, *PENDING_CHANGING))


@pytest.mark.django_db
@pytest.mark.parametrize("streamed_from", [1, 500], ids=["a stream", "statements"])
def test_rows_are_stored_as_they_are(
    fleet: SmallFleet, monkeypatch: pytest.MonkeyPatch, streamed_from: int
) -> None:
    monkeypatch.setattr(writing, "COPIED", streamed_from)
    names = (*PENDING_KEY, *PENDING_CHANGING)
    new = spans(fleet, gpus=1)
    write_rows(PendingSpan, names, new[:4], update=(), is_new=True)
    assert stored() == new[:4]
    more = spans(fleet, gpus=10)
    write_rows(PendingSpan, names, more)
    assert stored() == new[:4] + more[4:], "what is there is left as it is"
    write_rows(PendingSpan, names, new, update=PENDING_CHANGING)
    assert stored() == new, "what is there is made right"
    write_rows(PendingSpan, names, [], update=PENDING_CHANGING)
    assert stored() == new
    assert not Interval.objects.exists()


@pytest.mark.django_db
@pytest.mark.parametrize("streamed_from", [1, 500], ids=["a stream", "statements"])
def test_documents_are_stored_as_they_are(
    fleet: SmallFleet, monkeypatch: pytest.MonkeyPatch, streamed_from: int
) -> None:
    monkeypatch.setattr(writing, "COPIED", streamed_from)
    cluster = register("gpu-east", "apiVersion: v1")
    gpus = {"h100": 8, 'a "quoted" \\ \n one': 1}
    made = WorkloadState(
        cluster=cluster,
        uid="u",
        namespace="ns",
        name="w",
        phase="pending",
        message="a\tb\\c",
        gpus=gpus,
        created_at=START,
        updated_at=START,
        resource_version="1",
    )
    names = [field.attname for field in WorkloadState._meta.concrete_fields if field.name != "id"]
    row = tuple(getattr(made, name) for name in names)
    write_rows(WorkloadState, names, [row])
    found = WorkloadState.objects.get()
    assert (found.gpus, found.message, found.created_at) == (gpus, "a\tb\\c", START)
    assert (found.is_remote_copy, found.reserved_at, found.priority) == (False, None, 0)


@pytest.mark.django_db
def test_rows_are_read_as_going_through_them_reads_them(fleet: SmallFleet) -> None:
    times = (START, START + timedelta(microseconds=1), datetime(1, 1, 2, 3, 4, 5, tzinfo=UTC))
    names = (*PENDING_KEY, *PENDING_CHANGING)
    rows = [(*row[:2], at, *row[3:]) for row in spans(fleet, gpus=1) for at in times]
    write_rows(PendingSpan, names, rows)
    query = PendingSpan.objects.order_by("uid", "start").values_list(
        *names, "workspace__account__created_at"
    )
    found, want = list(read_rows(query)), list(query)
    assert found == want
    assert [[(type(value), getattr(value, "tzinfo", None)) for value in row] for row in found] == [
        [(type(value), getattr(value, "tzinfo", None)) for value in row] for row in want
    ]


@pytest.mark.django_db
def test_documents_are_read_as_going_through_them_reads_them(fleet: SmallFleet) -> None:
    cluster = register("gpu-east", "apiVersion: v1")
    for nth, gpus in enumerate(({}, {"h100": 8}, {'a "quoted" \\ \n one': 1})):
        WorkloadState.objects.create(
            cluster=cluster, uid=f"u{nth}", namespace="ns", name="w", phase="pending", gpus=gpus,
            created_at=START, resource_version="1",
        )  # fmt: skip
    query = WorkloadState.objects.order_by("uid").values_list("uid", "gpus", "reserved_at")
    assert list(read_rows(query)) == list(query)
    assert list(read_rows(query.filter(pk__in=()))) == []


@pytest.mark.django_db
@pytest.mark.parametrize(
    "wanted",
    [
        pytest.param([""], id="one, empty"),
        pytest.param(["", " "], id="two, one empty"),
        pytest.param([*AWKWARD], id="awkward"),
        pytest.param(["plain", "a\x1fb"], id="with the separator"),
        pytest.param([], id="none"),
    ],
)
def test_rows_of_many_values_are_those_and_no_others(fleet: SmallFleet, wanted: list[str]) -> None:
    names = (*PENDING_KEY, *PENDING_CHANGING)
    there = [
        ("east", f"u{nth}", START, None, 1, None, "ns", name, False)
        for nth, name in enumerate([*AWKWARD, "a\x1fb", "a", "b"])
    ]
    write_rows(PendingSpan, names, there)
    found = PendingSpan.objects.filter(among("workload", wanted))
    assert sorted(found.values_list("workload", flat=True)) == sorted(wanted)
