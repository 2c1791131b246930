"""What one cluster tells takes its part of a process's memory, and no other's."""

from __future__ import annotations

import copy
import gc
import json
import socket
import threading
import tracemalloc
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from budgets.texts import read_json
from clusters.documents.keys import without_writers
from clusters.documents.packed import Packed, packed
from clusters.errors import AnswerTooLarge, ServerFault
from clusters.kube import resources as r
from clusters.kube.client import KubeClient
from clusters.kube.kubeconfig import Connection
from clusters.kube.shares import MIB, Counted, Shares, recounted, size_of, weigh
from clusters.reconcile.runtime.watches import Seen, Watches
from tests.kube.test_hostile_server import chunks, server, whole
from tests.waiting import PATIENCE_S, eventually


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("[" + ",".join(["[]"] * 100_000) + "]", id="lists"),
        pytest.param("[" + ",".join(["{}"] * 100_000) + "]", id="maps"),
        pytest.param("[" + ",".join(['{"a":1}'] * 100_000) + "]", id="small maps"),
        pytest.param("[" + ",".join(["[[[[[]]]]]"] * 20_000) + "]", id="nested"),
        pytest.param("[" + ",".join(["1000000"] * 100_000) + "]", id="numbers"),
        pytest.param("[" + ",".join(["1.5"] * 100_000) + "]", id="fractions"),
        pytest.param("[" + ",".join(['"ab"'] * 100_000) + "]", id="texts"),
        pytest.param(
            "{" + ",".join(f'"{n:x}":{n}' for n in range(87_400)) + "}", id="one large map"
        ),
        pytest.param('["' + "x" * 500_000 + '\U0001f600"]', id="a wide text"),
        pytest.param('["' + "x" * 500_000 + '\\ud83d\\ude00"]', id="an escaped wide text"),
        pytest.param('["' + "é" * 250_000 + '"]', id="a text of Europe"),
        pytest.param(
            "[" + ",".join(json.dumps({"metadata": {"name": f"n{n}", "labels": {"a": "b"}},
                                       "spec": {"podSets": [{"count": n}]}})
                           for n in range(10_000)) + "]",
            id="objects",
        ),
    ],
)  # fmt: skip
def test_no_text_takes_more_memory_than_it_weighs(text: str):
    body = text.encode()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        kept = read_json(body)
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert kept and taken <= weigh(body)


def test_who_has_its_part_gets_more_only_while_there_is_room():
    shares = Shares(memory=400, among=4)
    first, second = shares.of("first"), shares.of("second")
    held = [first.hold(100, target="") for _ in range(4)]
    with pytest.raises(ServerFault, match="first shows more than its part"):
        first.hold(1, target="")
    held.append(second.hold(100, target=""))  # its own part is its own
    with pytest.raises(ServerFault):
        second.hold(1, target="")
    del held[:2]
    gc.collect()
    assert first.taken == 200
    second.hold(1, target="")


@pytest.mark.parametrize("count", [4, 20, 100])
def test_together_they_have_no_more_than_twice_the_memory_however_many_they_are(count: int):
    shares = Shares(memory=1000, among=4)
    clusters = [shares.of(str(number)) for number in range(count)]
    held = [clusters[0].hold(1, target="") for _ in range(1000)]
    for each in clusters[1:]:
        with suppress(ServerFault):
            while True:
                held.append(each.hold(1, target=""))
        assert each.taken == 1000 // count  # its own part is its own
    assert shares.taken <= 2 * shares.memory


def test_a_document_counts_until_nobody_has_it():
    share = Shares(memory=1000, among=1).of("east")
    document = Counted({"metadata": {"name": "a"}}, share.hold(700, target=""))
    twin = copy.deepcopy(document)
    assert twin == document and json.dumps(twin) == json.dumps(document)
    del document
    gc.collect()
    assert share.taken == 700
    del twin
    gc.collect()
    assert share.taken == 0


@pytest.fixture
def shares() -> Shares:
    return Shares(memory=40 * MIB, among=4)


def limited(client: KubeClient, shares: Shares) -> KubeClient:
    return KubeClient.from_connection(
        Connection(client.server), read_timeout_s=5.0, share=shares.of("greedy")
    )


def page(number: int | str, items: list[object]) -> bytes:
    metadata = {"resourceVersion": "1", "continue": str(number)}
    return whole(json.dumps({"metadata": metadata, "items": items}).encode())


def test_a_list_ends_where_the_part_of_its_cluster_does(shares: Shares):
    sent = [0]

    def talk(peer: socket.socket, _: bytes) -> None:
        sent[0] += 1
        items = [{"metadata": {"name": f"j{sent[0]}-{n}"}, "x": [[]] * 100} for n in range(100)]
        peer.sendall(page(sent[0], items))

    with server(talk) as known, limited(known, shares) as client:
        with pytest.raises(ServerFault, match="greedy shows more than its part"):
            client.list(r.JOB)
        gc.collect()
        assert shares.of("greedy").taken == 0  # given back with the list
    assert 5 < sent[0] < 60


def test_an_answer_that_would_take_too_much_is_not_read(shares: Shares):
    heavy = whole(b'{"metadata":{"name":"a"},"x":[' + b"[]," * 100_000 + b"[]]}")
    with (
        server(lambda peer, _: peer.sendall(heavy)) as known,
        limited(known, shares) as client,
        pytest.raises(AnswerTooLarge),
    ):
        client.get(r.JOB, "a", namespace="t")


def test_events_count_as_long_as_somebody_keeps_them(shares: Shares):
    event = {"type": "ADDED", "object": {"metadata": {"name": "a"}, "x": [[]] * 1000}}
    line = json.dumps(event).encode() + b"\n"

    def talk(peer: socket.socket, _: bytes) -> None:
        chunks(peer, iter([line] * 2_000))

    with server(talk) as known, limited(known, shares) as client:
        passing = sum(1 for _ in client.watch(r.JOB))
        assert passing == 2_000  # what nobody keeps takes nothing
        kept: list[object] = []

        def keep() -> Iterator[None]:
            kept.extend(client.watch(r.JOB))
            yield

        with pytest.raises(ServerFault, match="more than its part"):
            list(keep())
    too_large = b'{"type":"ADDED","object":{"metadata":{"name":"a"},"x":[' + b"[]," * 40_000
    with (
        server(lambda peer, _: chunks(peer, iter([too_large, b"[]]}}\n"]))) as known,
        limited(known, shares) as client,
        pytest.raises(ServerFault, match="an event takes"),
    ):
        list(client.watch(r.JOB))


def read_in(shares: Shares, text: str) -> Counted:
    return Counted(read_json(text), shares.of("greedy").hold(weigh(text.encode()), target=""))


def written_by_many(name: str) -> dict[str, Any]:
    writer = {"manager": "kueue", "fieldsV1": {f"f:{n}": {"f:x": {}} for n in range(100)}}
    spec = {"podSets": [{"name": f"p{n}", "count": n} for n in range(5)]}
    return {"metadata": {"name": name, "managedFields": [writer]}, "spec": spec}


def test_what_is_kept_counts_for_what_it_takes_and_for_no_page(shares: Shares):
    share = shares.of("greedy")
    page = read_in(shares, json.dumps({"items": [written_by_many(f"j{n}") for n in range(100)]}))
    items = [Counted(item, page.held) for item in page["items"]]
    whole_page = share.taken
    del page
    kept = [recounted(item, without_writers(item)) for item in items]
    del items
    assert 0 < share.taken == sum(size_of(each) for each in kept) < whole_page / 10
    del kept[1:]
    assert share.taken == size_of(kept[0])
    del kept
    assert share.taken == 0


def test_what_watches_have_listed_counts_for_what_it_takes(shares: Shares):
    items = [written_by_many(f"j{n}") for n in range(20)]
    stop, seen = threading.Event(), list[object]()

    def talk(peer: socket.socket, request: bytes) -> None:
        if b"watch=" in request:
            stop.wait(PATIENCE_S)
        peer.sendall(page("", items))

    with server(talk) as known, limited(known, shares) as client:
        watches = Watches(client, cluster="greedy", pulse=None, sink=seen.append)
        watches.add(r.JOB)
        try:
            eventually(lambda: watches.is_synced)
            kept = [each.document for each in seen if isinstance(each, Seen) and each.document]
            assert len(kept) == 20
            eventually(lambda: shares.of("greedy").taken == sum(map(size_of, kept)))
        finally:
            stop.set()
            watches.close()


def test_what_is_kept_may_take_more_than_its_text_weighed(shares: Shares):
    read = read_in(shares, "{}")
    kept = recounted(read, {"x": "y" * 10_000})
    del read
    assert shares.of("greedy").taken > 10_000
    del kept
    assert shares.of("greedy").taken == 0


def test_a_packed_document_counts_with_its_parts(shares: Shares):
    heavy = {"metadata": {"name": "a"}, "spec": {"x": [str(hash(str(n))) for n in range(10_000)]}}
    read = read_in(shares, json.dumps(heavy))
    kept = recounted(read, packed(read))
    assert type(kept) is Packed
    del read
    assert 50_000 < shares.of("greedy").taken == size_of(kept) < 200_000
    del kept
    assert shares.of("greedy").taken == 0


def test_a_document_takes_no_more_than_its_size():
    texts = [json.dumps(written_by_many(f"j{n}")) for n in range(1_000)]
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        kept = [read_json(text) for text in texts]
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert taken <= sum(map(size_of, kept)) < 1.5 * taken
