"""Killed at any moment, the portal converges without help, and nothing is applied twice."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from clusters.documents import labels
from tests.faults.stack import LEASE_S, Stack, wait_for

pytestmark = [pytest.mark.redis]
WORKSPACE, FLAVOR = "acme-research", "h100"
TAKE_OVER_S = 4 * LEASE_S + 120


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A running portal whose six workspaces stand on three clusters."""
    with Stack(tmp_path_factory.mktemp("faults")) as running:
        running.start_celery()
        wait_for("the first sync", 180, lambda: running.has_quota(WORKSPACE, FLAVOR, 16))
        yield running


def is_up_to_date(stack: Stack) -> bool:
    """Whether every cluster carries the newest generation of the budget."""
    wanted = stack.facts(
        "str(__import__('budgets.models').models.Budget.objects"
        f".get(workspace__namespace={WORKSPACE!r}).generation)"
    )
    queues = [stack.queue(name, WORKSPACE) for name in ("manager", "worker-1", "worker-2")]
    carried = [queue["metadata"]["annotations"].get(labels.GENERATION) for queue in queues]
    return carried == [wanted] * 3


def settle(stack: Stack, gpus: int, seconds: float) -> float:
    return wait_for(
        f"{WORKSPACE} with {gpus} GPUs on all clusters",
        seconds,
        lambda: stack.has_quota(WORKSPACE, FLAVOR, gpus),
    )


def test_killed_shift_worker_is_taken_over(stack: Stack) -> None:
    stack.start_worker("standby", "shift", 14)
    time.sleep(3)
    stack.kill("shifts")
    stack.revise(WORKSPACE, 8, 24)
    try:
        settle(stack, 8, TAKE_OVER_S)
    finally:
        stack.start_worker("shifts", "shift", 14)
        stack.kill("standby")


def test_without_any_shift_worker_nothing_converges(stack: Stack) -> None:
    """The negative control: it is the shift that applies, and nothing else."""
    settled = stack.nominal("manager", WORKSPACE)[FLAVOR]
    stack.kill("shifts")
    stack.revise(WORKSPACE, 16, 24)
    try:
        time.sleep(6)
        assert stack.nominal("manager", WORKSPACE)[FLAVOR] == settled
    finally:
        stack.start_worker("shifts", "shift", 14)
    settle(stack, 16, TAKE_OVER_S)


def test_redis_gone_with_its_data_loses_nothing(stack: Stack) -> None:
    stack.kill("redis")
    stack.revise(WORKSPACE, 8, 16)
    time.sleep(2)
    stack.start_redis()
    settle(stack, 8, TAKE_OVER_S)


def test_redis_gone_and_workers_killed_still_converges(stack: Stack) -> None:
    for name in ("redis", "shifts", "tasks", "beat"):
        stack.kill(name)
    stack.revise(WORKSPACE, 16, 32)
    stack.start_redis()
    stack.start_celery()
    settle(stack, 16, TAKE_OVER_S)


def test_frozen_cluster_harms_no_other_and_heals(stack: Stack) -> None:
    worker = stack.fleet.servers["worker-2"].cluster
    worker.faults.freeze()
    try:
        stack.revise(WORKSPACE, 8, 8)
        wait_for(
            "the manager's new quota",
            TAKE_OVER_S,
            lambda: stack.nominal("manager", WORKSPACE)[FLAVOR] == 8,
        )
        wait_for(
            "the lost cluster to be shown",
            15,
            lambda: (
                stack.facts(
                    "list(__import__('clusters.models').models.ClusterHealth.objects"
                    ".filter(reachable=False).values_list('cluster__slug', flat=True))"
                )
                == ["worker-2"]
            ),
        )
    finally:
        worker.faults.thaw()
    settle(stack, 8, TAKE_OVER_S)


def test_one_edit_is_written_once_on_each_cluster(stack: Stack) -> None:
    """Two shift workers run; the lease lets one of them write."""
    stack.start_worker("second", "shift", 14)
    try:
        time.sleep(3)
        # The edits of other tests have to be written whole first: equal floors are told from
        # each other by their generation alone.
        wait_for("what was saved before", TAKE_OVER_S, lambda: is_up_to_date(stack))
        before = {
            name: int(stack.queue(name, WORKSPACE)["metadata"]["generation"])
            for name in ("manager", "worker-1", "worker-2")
        }
        stack.revise(WORKSPACE, 16, 40)
        settle(stack, 16, TAKE_OVER_S)
        time.sleep(2)
        after = {
            name: int(stack.queue(name, WORKSPACE)["metadata"]["generation"]) for name in before
        }
        assert {name: after[name] - before[name] for name in before} == dict.fromkeys(before, 1)
    finally:
        stack.kill("second")
