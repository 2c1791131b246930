"""Reflectors and the pulse while the cluster misbehaves in every way that the embedded one can."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from clusters import errors
from clusters.devcluster.cluster import ClusterOptions, DevCluster
from clusters.devcluster.registry import BY_KEY
from clusters.devcluster.server import DevServer
from clusters.devcluster.writes import MERGE, Address, Intent
from clusters.kube import resources as r
from clusters.kube.client import KubeClient, Selection, WatchOptions
from clusters.kube.kubeconfig import Connection
from clusters.kube.pulse import Pulse, PulseSettings
from clusters.kube.watch import Reflector, ReflectorSettings
from tests.kube.documents import config_map
from tests.waiting import PATIENCE_S, eventually

QUICK = ReflectorSettings(backoff_first_s=0.02, backoff_cap_s=0.2, watch_without_pulse_s=2.0)


class Image:
    """A handler that keeps the names, and how often each was told."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self.told: list[tuple[str, str]] = []
        self.syncs = 0

    def upsert(self, document: dict[str, Any]) -> None:
        name = document["metadata"]["name"]
        self.names[name] = document["metadata"]["uid"]
        self.told.append(("upsert", name))

    def deleted(self, document: dict[str, Any]) -> None:
        name = document["metadata"]["name"]
        self.names.pop(name)
        self.told.append(("deleted", name))

    def synced(self) -> None:
        self.syncs += 1


@contextmanager
def running(reflector: Reflector, pulse: Pulse | None = None) -> Iterator[None]:
    stop = threading.Event()
    threads = [threading.Thread(target=reflector.run, args=(stop,))]
    if pulse:
        threads.append(threading.Thread(target=pulse.run, args=(stop,)))
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        reflector.interrupt()
        for thread in threads:
            thread.join(timeout=PATIENCE_S)
            assert not thread.is_alive()


def watched(client: KubeClient, image: Image, **more: Any) -> Reflector:
    more.setdefault("settings", QUICK)
    return Reflector(client, r.CONFIG_MAP, image, selection=Selection("default"), **more)


def make(client: KubeClient, *names: str) -> None:
    for name in names:
        client.create(r.CONFIG_MAP, config_map("default", name))


def test_reflector_lists_then_follows(client: KubeClient) -> None:
    make(client, "a", "b")
    image = Image()
    reflector = watched(client, image)
    with running(reflector):
        assert eventually(lambda: image.syncs == 1 and reflector.is_watching)
        assert set(image.names) == {"a", "b"}
        make(client, "c")
        client.delete(r.CONFIG_MAP, "a", namespace="default")
        assert eventually(lambda: set(image.names) == {"b", "c"})
        assert [d["metadata"]["name"] for d in reflector.snapshot()] == ["b", "c"]
        age = reflector.age()
        assert age is not None
        assert age < 2
    assert reflector.relists == 1


def test_reflector_resumes_without_listing_again(dev: DevServer, client: KubeClient) -> None:
    image = Image()
    reflector = watched(client, image)
    with running(reflector):
        assert eventually(lambda: reflector.is_watching)
        dev.cluster.store.end_subscriptions()
        dev.drop_connections()
        make(client, "while-away")
        assert eventually(lambda: "while-away" in image.names)
    assert reflector.relists == 1


def test_reflector_lists_again_on_410_and_tells_only_differences(
    dev: DevServer, client: KubeClient
) -> None:
    make(client, "stays", "goes", "changes", "reborn")
    image = Image()
    reflector = watched(client, image)
    with running(reflector):
        assert eventually(lambda: reflector.is_watching)
        old = image.names["reborn"]
        image.told.clear()
        dev.cluster.faults.fail(503, count=10_000, path="configmaps")
        dev.cluster.store.end_subscriptions()
        in_process = dev.cluster.writes

        def target(name: str) -> Address:
            return Address(BY_KEY["/configmaps"], "default", name)

        in_process.delete(target("goes"), None, dry_run=False)
        in_process.delete(target("reborn"), None, dry_run=False)
        in_process.create(target("reborn"), config_map("default", "reborn"), Intent())
        in_process.patch(target("changes"), {"data": {"a": "1"}}, MERGE, Intent())
        dev.cluster.store.compact()
        dev.cluster.faults.clear()
        assert eventually(lambda: image.syncs == 2)
        assert client.get(r.CONFIG_MAP, "stays", namespace="default")
    assert set(image.names) == {"stays", "changes", "reborn"}
    assert image.names["reborn"] != old
    assert sorted(image.told) == [
        ("deleted", "goes"),
        ("deleted", "reborn"),
        ("upsert", "changes"),
        ("upsert", "reborn"),
    ]


def test_reflector_heals_after_errors(dev: DevServer, client: KubeClient) -> None:
    dev.cluster.faults.fail(500, count=2, path="configmaps")
    dev.cluster.faults.fail(403, count=1, path="configmaps")
    dev.cluster.faults.fail(429, count=1, path="configmaps")
    image = Image()
    reflector = watched(client, image)
    with running(reflector):
        assert eventually(lambda: image.syncs == 1 and reflector.is_watching)
        assert reflector.last_error is None


def test_reflector_notices_a_frozen_cluster_and_heals(dev: DevServer, client: KubeClient) -> None:
    image = Image()
    pulse = Pulse(client, settings=PulseSettings(every_s=0.2, timeout_s=0.3))
    reflector = watched(client, image, pulse=pulse)
    with running(reflector, pulse):
        assert eventually(lambda: reflector.is_watching and pulse.last_answer is not None)
        dev.cluster.faults.freeze()
        # Beside a pulse a watch that is silent lasts far longer than anybody waits here.
        assert ReflectorSettings().watch_s * 0.8 > 2 * PATIENCE_S
        assert eventually(lambda: pulse.is_lost and not reflector.is_watching)
        assert isinstance(pulse.last_error, errors.TimedOut)
        dev.cluster.faults.thaw()
        assert eventually(lambda: reflector.is_watching and not pulse.is_lost)
        make(client, "after")
        assert eventually(lambda: "after" in image.names)


def test_without_a_pulse_a_frozen_cluster_looks_alive(dev: DevServer, client: KubeClient) -> None:
    # The negative control of the pulse: a long watch says nothing, and nobody notices.
    settings = ReflectorSettings(watch_without_pulse_s=60.0)
    reflector = watched(client, Image(), settings=settings)
    with running(reflector):
        assert eventually(lambda: reflector.is_watching)
        dev.cluster.faults.freeze()
        time.sleep(1.0)
        assert reflector.is_watching
        assert reflector.last_error is None


def test_pulse_defaults_notice_a_loss_within_ten_seconds() -> None:
    settings = PulseSettings()
    worst = settings.every_s + settings.failures * settings.timeout_s + 0.1 * settings.failures
    assert worst < 10


def test_reflector_without_pulse_bounds_every_silence() -> None:
    settings = ReflectorSettings()
    assert settings.watch_without_pulse_s + settings.grace_s < 10


def test_reflector_age_grows_while_the_cluster_is_gone(dev: DevServer, client: KubeClient) -> None:
    image = Image()
    pulse = Pulse(client, settings=PulseSettings(every_s=0.05, timeout_s=0.3))
    reflector = watched(client, image, pulse=pulse)
    assert reflector.age() is None
    with running(reflector, pulse):
        assert eventually(lambda: reflector.is_watching)
        dev.cluster.faults.is_refusing = True
        dev.drop_connections()
        assert eventually(lambda: pulse.is_lost)
        first = reflector.age()
        time.sleep(0.3)
        second = reflector.age()
        assert first is not None
        assert second is not None
        assert second > first + 0.2
        dev.cluster.faults.is_refusing = False
        assert eventually(lambda: (reflector.age() or 9) < 0.2)


def test_reflector_stops_at_once_in_a_silent_watch(client: KubeClient) -> None:
    settings = ReflectorSettings(watch_without_pulse_s=10 * PATIENCE_S)
    reflector = watched(client, Image(), settings=settings)
    with running(reflector):
        assert eventually(lambda: reflector.is_watching)
        started = time.monotonic()
    assert time.monotonic() - started < PATIENCE_S


def test_reflector_stops_at_once_while_its_watch_is_being_opened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = ClusterOptions(name="silent", bookmark_every_s=10 * PATIENCE_S)
    with (
        DevServer(DevCluster(options)) as dev,
        KubeClient.from_kubeconfig(dev.kubeconfig) as client,
    ):
        settings = ReflectorSettings(watch_without_pulse_s=10 * PATIENCE_S)
        reflector, stop = watched(client, Image(), settings=settings), threading.Event()
        open_it = KubeClient.watch

        def told_to_stop_meanwhile(*arguments: Any, **more: Any) -> Any:
            stop.set()
            reflector.interrupt()
            return open_it(*arguments, **more)

        monkeypatch.setattr(KubeClient, "watch", told_to_stop_meanwhile)
        thread = threading.Thread(target=reflector.run, args=(stop,), daemon=True)
        thread.start()
        thread.join(PATIENCE_S)
        assert stop.is_set() and not thread.is_alive()


def test_reflector_passes_on_what_its_handler_raises(client: KubeClient) -> None:
    class Broken(Image):
        def synced(self) -> None:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        watched(client, Broken()).run(threading.Event())


@contextmanager
def raw_watch(*pieces: bytes, close: bool = True) -> Iterator[KubeClient]:
    """A server that answers one watch with these bytes as they are, then closes or falls silent."""
    done = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                connection.sendall(head + b"".join(pieces))
                if not close:
                    done.wait(PATIENCE_S)

        thread = threading.Thread(target=serve)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        try:
            with KubeClient.from_connection(Connection(url, token="t")) as client:
                yield client
        finally:
            done.set()
            thread.join()


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def event(name: str) -> bytes:
    document = {"metadata": {"name": name, "resourceVersion": "5"}}
    return json.dumps({"type": "ADDED", "object": document}).encode() + b"\n"


GOOD = event("a")


@pytest.mark.parametrize(
    ("pieces", "want"),
    [
        pytest.param([chunk(GOOD), chunk(b"{oops\n")], errors.ServerFault, id="not JSON"),
        pytest.param(
            [chunk(GOOD), chunk(b'{"type":"ADDED"}\n')], errors.ServerFault, id="no object"
        ),
        pytest.param(
            [chunk(GOOD), chunk(b'{"type":"WHAT","object":{"metadata":{}}}\n')],
            errors.ServerFault,
            id="unknown type",
        ),
        pytest.param([chunk(GOOD), chunk(b"[1]\n")], errors.ServerFault, id="not an event"),
        pytest.param(
            [chunk(GOOD), chunk(GOOD[:9]), b"0\r\n\r\n"],
            errors.ServerFault,
            id="ends inside a line",
        ),
        pytest.param([chunk(GOOD), b"ff\r\nhalf"], errors.Unreachable, id="cut inside a chunk"),
        pytest.param([chunk(GOOD), b"zz\r\n"], errors.Unreachable, id="broken chunk"),
        pytest.param(
            [
                chunk(GOOD),
                chunk(
                    b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}\n'
                ),
            ],
            errors.Gone,
            id="expired",
        ),
    ],
)
def test_watch_stream_refuses_what_is_not_an_event(
    pieces: list[bytes], want: type[errors.ClusterError]
) -> None:
    seen = []
    with raw_watch(*pieces) as client, pytest.raises(want), client.watch(r.CONFIG_MAP) as stream:
        for item in stream:
            seen.append(item.document["metadata"]["name"])
    assert seen == ["a"]


def test_watch_stream_joins_events_split_over_chunks() -> None:
    pieces = [
        chunk(GOOD[:7]),
        chunk(GOOD[7:] + event("b")[:3]),
        chunk(event("b")[3:]),
        b"0\r\n\r\n",
    ]
    with raw_watch(*pieces) as client, client.watch(r.CONFIG_MAP) as stream:
        assert [item.document["metadata"]["name"] for item in stream] == ["a", "b"]


def test_watch_stream_silence_ends_in_a_timeout() -> None:
    options = WatchOptions(idle_timeout_s=0.3)
    with (
        raw_watch(chunk(GOOD), close=False) as client,
        pytest.raises(errors.TimedOut),
        client.watch(r.CONFIG_MAP, options=options) as stream,
    ):
        assert [item.type for item in stream]
