"""Filling in history: what is read, what is placed, what is told."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator
from datetime import timedelta
from hashlib import sha256

import pytest
from django.core.management import CommandError, call_command

from budgets import services
from budgets.errors import Rejected
from budgets.models import AuditEntry, Interval, UsageRecord
from clusters.devcluster.cluster import ClusterOptions, DevCluster
from clusters.devcluster.server import DevServer
from clusters.kube import resources as r
from clusters.kube.client import KubeClient, WriteOptions
from clusters.models import WorkloadEvent
from clusters.services.back_fill import import_objects, import_runs, read_runs
from clusters.services.back_fill.importing import _document
from tests.builders import START, SmallFleet, hours
from tests.reconcile.fleet_rows import register

NOW = hours(100)
HEADING = "cluster,namespace,workload,flavor,gpus,start,end"
TRAIN = "gpu-east,acme-vision,train,h100,8,2026-03-01T01:00:00Z,2026-03-01T03:30:00Z"


@pytest.fixture
def east(fleet: SmallFleet):
    return register("gpu-east", "apiVersion: v1")


def runs_of(*lines: str, heading: str = HEADING):
    return read_runs([heading + "\n", *(line + "\n" for line in lines)], now=NOW)


def faults_of(*lines: str, heading: str = HEADING) -> list[tuple[str, str]]:
    with pytest.raises(Rejected) as found:
        runs_of(*lines, heading=heading)
    return [(fault.field, fault.message) for fault in found.value.faults]


def test_a_run_becomes_an_interval_and_hour_facts(east):
    made = import_runs(None, runs_of(TRAIN))
    services.record_progress(cluster="gpu-east", complete_until=NOW)
    services.meter_usage(NOW)

    interval = Interval.objects.get()
    assert (interval.start, interval.end) == (hours(1), hours(3.5))
    assert (interval.kind, interval.gpus) == ("billable", 8)
    assert interval.workspace and interval.workspace.namespace == "acme-vision"
    assert made.gpu_seconds == 8 * 9000
    used = sum(row.committed_used + row.burst for row in UsageRecord.objects.all())
    assert used == 8 * 9000
    assert AuditEntry.objects.get(action="usage.import").after["new"] == 1


def test_the_same_file_twice_is_the_same_history_once(east):
    import_runs(None, runs_of(TRAIN))
    again = import_runs(None, runs_of(TRAIN))
    assert (again.placed, again.new) == (1, 0)
    assert Interval.objects.count() == WorkloadEvent.objects.count() == 1
    assert AuditEntry.objects.filter(action="usage.import").count() == 1


def test_a_dry_run_reports_the_same_and_writes_nothing(east):
    made = import_runs(None, runs_of(TRAIN), dry_run=True)
    assert (made.new, made.gpu_seconds) == (1, 72000)
    assert not Interval.objects.exists()
    assert not WorkloadEvent.objects.exists()
    assert not AuditEntry.objects.filter(action="usage.import").exists()


def test_what_the_portal_has_seen_itself_is_not_counted_again(east):
    import_runs(None, runs_of(TRAIN + ",seen-by-watch", heading=HEADING + ",uid"))
    made = import_runs(None, runs_of(TRAIN))
    assert made.placed == 0
    assert "seen it there already, as seen-by-watch" in made.unplaced[0].why
    later = TRAIN.replace("T01:", "T04:").replace("T03:", "T05:")
    assert import_runs(None, runs_of(later)).placed == 1


def test_what_has_no_place_is_told_and_the_rest_is_taken(east):
    made = import_runs(
        None,
        runs_of(
            TRAIN,
            TRAIN.replace("gpu-east", "gpu-moon"),
            TRAIN.replace("h100", "b300"),
            TRAIN.replace("acme-vision", "nobody"),
        ),
    )
    assert [row.where for row in made.unplaced] == [
        "line 3, gpu-moon acme-vision/train",
        "line 4, gpu-east acme-vision/train",
    ]
    assert (made.given, made.placed, made.outside) == (4, 2, 1)
    assert Interval.objects.get(namespace="nobody").kind == "outside"


def test_everything_wrong_with_a_file_is_told_at_once():
    assert faults_of(
        TRAIN.replace(",8,", ",eight,"),
        TRAIN.replace("T01:00:00Z", "T01:00:00"),
        TRAIN.replace("T03:30", "T00:30"),
        TRAIN.replace("2026-03-01T03", "2027-03-01T03"),
        TRAIN.replace("gpu-east", ""),
        TRAIN + ",extra",
        TRAIN.replace("2026-03-01T01", "1999-03-01T01"),
        TRAIN.replace("2026-03-01T01:00:00Z", "0001-01-01T00:00:00+14:00"),
    ) == [
        ("line 2, gpus", "gpus is 'eight'; a whole number from 1 to 100000 is wanted"),
        ("line 3, start", "start is '2026-03-01T01:00:00'; write it like 2026-03-01T08:00:00Z"),
        ("line 4, end", "end is not after the start 2026-03-01T01:00:00+00:00"),
        ("line 5, end", "end lies ahead; only what has ended can be filled in"),
        ("line 6, cluster", "cluster is empty"),
        ("line 7", "the line has more cells than the heading"),
        (
            "line 8, start",
            "start cannot be: The year 1999 is out of range. Give one from 2000 to 2199.",
        ),
        (
            "line 9, start",
            "start is '0001-01-01T00:00:00+14:00'; write it like 2026-03-01T08:00:00Z",
        ),
    ]


def test_a_heading_is_checked_before_the_lines():
    assert faults_of(TRAIN, heading="cluster,namespace,workload,gpu,gpus,start,start") == [
        ("line 1", "the line lacks the columns flavor, end"),
        (
            "line 1",
            "the line has unknown columns gpu; there are cluster, namespace, workload, flavor, "
            "gpus, start, end, uid, cluster_queue, job",
        ),
        ("line 1", "the line has start more than once"),
    ]
    assert faults_of(heading="") == [
        ("line 1", "the line lacks the columns " + HEADING.replace(",", ", "))
    ]


def test_one_uid_is_one_run():
    assert faults_of(TRAIN, TRAIN) == [("line 3, uid", "uid is that of line 2 already")]


def test_command_reports_and_exits_1_for_what_was_not_placed(east, tmp_path):
    path, out = tmp_path / "past.csv", io.StringIO()
    path.write_text("\n".join((HEADING, TRAIN, TRAIN.replace("h100", "b300"))))
    with pytest.raises(SystemExit, match="1"):
        call_command("import_usage", str(path), stdout=out)
    assert out.getvalue().splitlines() == [
        "not placed: line 3, gpu-east acme-vision/train: there is no flavor 'b300'; "
        "add it in the set-up",
        "1 new, 72000 GPU-seconds",
        "1 of 2 placed",
    ]
    entry = AuditEntry.objects.get(action="usage.import")
    assert entry.actor_name.endswith(" on the server")
    assert (entry.after["file"], entry.after["rows"]) == (str(path), 2)
    assert entry.after["sha256"] == sha256(path.read_bytes()).hexdigest()
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(CommandError, match="cannot be read"):
        call_command("import_usage", str(path))
    with pytest.raises(CommandError, match="Registered clusters: gpu-east"):
        call_command("import_usage", cluster="moon")


@pytest.fixture
def lived() -> Iterator[DevServer]:
    """A cluster that still has a job that ran and one that never did."""
    with DevServer(DevCluster(ClusterOptions(name="gpu-east"))) as server:
        client = KubeClient.from_kubeconfig(server.kubeconfig)
        namespace = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": "acme-vision"},
        }
        client.create(r.NAMESPACE, namespace)
        (run,) = runs_of(TRAIN)
        for name in ("train", "never-ran"):
            document = _document(run, "nvidia.com/gpu")
            status = document.pop("status")
            document["spec"]["queueName"] = "default"
            document["metadata"] = {"name": name, "namespace": "acme-vision"}
            client.create(r.WORKLOAD, document)
            if name == "train":
                client.patch(
                    r.WORKLOAD,
                    name,
                    {"status": status},
                    namespace="acme-vision",
                    options=WriteOptions(subresource="status"),
                )
        client.close()
        yield server


@pytest.mark.embedded
def test_what_is_read_from_a_cluster_says_who_and_what_as_well(fleet: SmallFleet, lived: DevServer):
    register("gpu-east", lived.kubeconfig)
    with pytest.raises(SystemExit, match="1"):
        call_command("import_usage", cluster="gpu-east", stdout=io.StringIO())
    entry = AuditEntry.objects.get(action="usage.import")
    assert entry.actor_name.endswith(" on the server")
    assert (entry.after["file"], entry.after["rows"]) == ("Workloads of gpu-east", 2)
    with contextlib.closing(KubeClient.from_kubeconfig(lived.kubeconfig)) as client:
        found = sorted(client.list(r.WORKLOAD).items, key=lambda row: row["metadata"]["uid"])
    digest = sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()
    assert entry.after["sha256"] == digest


@pytest.mark.embedded
def test_finished_workloads_that_a_cluster_still_has_are_taken_in(east, lived: DevServer):
    with contextlib.closing(KubeClient.from_kubeconfig(lived.kubeconfig)) as client:
        made = import_objects(None, east, client)
        again = import_objects(None, east, client)
    assert (made.given, made.placed, made.gpu_seconds) == (2, 1, 72000)
    assert [row.where for row in made.unplaced] == ["acme-vision/never-ran"]
    assert (again.placed, again.new) == (1, 0)
    interval = Interval.objects.get()
    assert interval.end - interval.start == timedelta(hours=2.5)
    assert interval.start == START + timedelta(hours=1)
