"""The contract suite, part four: watches, resumption, expiry and Lease races, on both servers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from clusters import errors
from clusters.kube import resources as r
from clusters.kube.client import KubeClient, Selection, WatchOptions
from clusters.kube.lease import ClusterLease, LeaseName
from clusters.kube.stream import WatchEvent, WatchType
from tests.kube.documents import config_map

Unique = Callable[[str], str]


def follow(
    client: KubeClient, selection: Selection, version: str, *, until: int
) -> list[WatchEvent]:
    """The first `until` events that are no bookmarks, or those of 5 seconds."""
    options = WatchOptions(resource_version=version, timeout_s=5)
    found: list[WatchEvent] = []
    with client.watch(r.CONFIG_MAP, selection, options=options) as stream:
        for event in stream:
            if event.type is not WatchType.BOOKMARK:
                found.append(event)
            if len(found) == until:
                break
    return found


def named(events: list[WatchEvent]) -> list[tuple[str, str]]:
    return [(str(event.type), event.document["metadata"]["name"]) for event in events]


def test_watch_resumes_where_a_list_ended(contract_client: KubeClient, namespace: str) -> None:
    contract_client.create(r.CONFIG_MAP, config_map(namespace, "before"))
    version = contract_client.list(r.CONFIG_MAP, Selection(namespace)).resource_version
    contract_client.create(r.CONFIG_MAP, config_map(namespace, "one"))
    contract_client.patch(r.CONFIG_MAP, "one", {"data": {"a": "1"}}, namespace=namespace)
    contract_client.delete(r.CONFIG_MAP, "one", namespace=namespace)
    selection = Selection(namespace, fields="metadata.name=one")
    events = follow(contract_client, selection, version, until=3)
    assert named(events) == [("ADDED", "one"), ("MODIFIED", "one"), ("DELETED", "one")]
    versions = [int(event.resource_version) for event in events]
    assert versions == sorted(versions)
    resumed = follow(contract_client, selection, events[0].resource_version, until=2)
    assert named(resumed) == [("MODIFIED", "one"), ("DELETED", "one")]


def test_text_that_no_database_keeps_is_read_as_replaced(
    contract_client: KubeClient, namespace: str
) -> None:
    version = contract_client.list(r.CONFIG_MAP, Selection(namespace)).resource_version
    document = config_map(namespace, "noisy") | {"data": {"log": "failed\0", "path": "\\u0000"}}
    answered = contract_client.create(r.CONFIG_MAP, document)
    selection = Selection(namespace, fields="metadata.name=noisy")
    read = [
        answered,
        contract_client.get(r.CONFIG_MAP, "noisy", namespace=namespace),
        *contract_client.list(r.CONFIG_MAP, selection).items,
        *(event.document for event in follow(contract_client, selection, version, until=1)),
    ]
    assert [found["data"] for found in read] == [{"log": "failed\ufffd", "path": "\\u0000"}] * 4


def test_watch_without_version_begins_with_what_is_there(
    contract_client: KubeClient, namespace: str
) -> None:
    for name in ("a", "b"):
        document = config_map(namespace, name)
        document["metadata"]["labels"] = {"here": "yes"}
        contract_client.create(r.CONFIG_MAP, document)
    events = follow(contract_client, Selection(namespace, labels="here=yes"), "", until=2)
    assert sorted(named(events)) == [("ADDED", "a"), ("ADDED", "b")]


def test_watch_shows_entering_and_leaving_a_selection(
    contract_client: KubeClient, namespace: str
) -> None:
    selection = Selection(namespace, labels="mine=yes")
    version = contract_client.list(r.CONFIG_MAP, selection).resource_version
    contract_client.create(r.CONFIG_MAP, config_map(namespace, "one"))
    for labels in ({"mine": "yes"}, {"mine": "still"}):
        body: dict[str, Any] = {"metadata": {"labels": labels}}
        contract_client.patch(r.CONFIG_MAP, "one", body, namespace=namespace)
    events = follow(contract_client, selection, version, until=2)
    assert named(events) == [("ADDED", "one"), ("DELETED", "one")]


def test_watch_sees_changes_while_open(contract_client: KubeClient, namespace: str) -> None:
    selection = Selection(namespace, fields="metadata.name=live")
    version = contract_client.list(r.CONFIG_MAP, selection).resource_version
    options = WatchOptions(resource_version=version, timeout_s=5)
    with contract_client.watch(r.CONFIG_MAP, selection, options=options) as stream:
        timer = threading.Timer(
            0.1, contract_client.create, (r.CONFIG_MAP, config_map(namespace, "live"))
        )
        timer.start()
        event = next(event for event in stream if event.type is not WatchType.BOOKMARK)
        timer.join()
    assert event.type is WatchType.ADDED


def test_watch_ends_when_interrupted(contract_client: KubeClient, namespace: str) -> None:
    stream = contract_client.watch(r.CONFIG_MAP, Selection(namespace, labels="never=there"))
    timer = threading.Timer(0.2, stream.interrupt)
    timer.start()
    assert [e for e in stream if e.type is not WatchType.BOOKMARK] == []
    assert stream.was_interrupted
    timer.join()
    stream.close()


def test_watch_ends_by_itself_after_its_time(contract_client: KubeClient, namespace: str) -> None:
    selection = Selection(namespace, labels="never=there")
    version = contract_client.list(r.CONFIG_MAP, selection).resource_version
    options = WatchOptions(resource_version=version, timeout_s=1)
    with contract_client.watch(r.CONFIG_MAP, selection, options=options) as stream:
        kinds = {event.type for event in stream}
    assert kinds <= {WatchType.BOOKMARK}
    assert not stream.was_interrupted


def test_watch_from_a_forgotten_version_is_gone(
    contract_client: KubeClient, namespace: str, forget_history: Callable[[], None]
) -> None:
    version = contract_client.list(r.CONFIG_MAP, Selection(namespace)).resource_version
    contract_client.create(r.CONFIG_MAP, config_map(namespace, "one"))
    forget_history()
    with pytest.raises(errors.Gone) as caught:
        follow(contract_client, Selection(namespace), version, until=1)
    assert caught.value.status_code == 410
    listed = contract_client.list(r.CONFIG_MAP, Selection(namespace, fields="metadata.name=one"))
    assert len(listed.items) == 1


def test_watch_of_invalid_version_is_refused(contract_client: KubeClient, namespace: str) -> None:
    options = WatchOptions(resource_version="abc", timeout_s=1)
    with pytest.raises(errors.ClusterError):
        contract_client.watch(r.CONFIG_MAP, Selection(namespace), options=options).close()


def test_lease_race_has_one_winner(
    contract_kubeconfig: str, contract_client: KubeClient, namespace: str
) -> None:
    name = LeaseName(namespace, "role")
    contenders = [ClusterLease(contract_client, name, holder=f"h{i}") for i in range(6)]
    barrier = threading.Barrier(len(contenders))
    wins: list[str] = []

    def contend(index: int) -> None:
        barrier.wait()
        if contenders[index].try_acquire():
            wins.append(f"h{index}")

    threads = [threading.Thread(target=contend, args=(i,)) for i in range(len(contenders))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(wins) == 1
    lease = contract_client.get(r.LEASE, "role", namespace=namespace)
    assert lease["spec"]["holderIdentity"] == wins[0]
    assert sum(contender.is_held for contender in contenders) == 1


def test_lease_released_is_free_at_once(contract_client: KubeClient, namespace: str) -> None:
    name = LeaseName(namespace, "role")
    first = ClusterLease(contract_client, name, holder="first")
    second = ClusterLease(contract_client, name, holder="second")
    assert first.try_acquire()
    assert not second.try_acquire()
    assert second.other_holder == "first"
    first.renew()
    first.check()
    first.release()
    with pytest.raises(errors.LeaseLost):
        first.check()
    assert second.try_acquire()
    lease = contract_client.get(r.LEASE, "role", namespace=namespace)
    assert lease["spec"]["holderIdentity"] == "second"
    assert lease["spec"]["leaseTransitions"] == 1
