"""The audit log on its way to syslog and webhooks: every entry, in order, at least once."""

from __future__ import annotations

import json
import re
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

import pytest
import time_machine
from django.db import connection, transaction
from django.db.models import Q

from budgets import services
from budgets.errors import Rejected
from budgets.models import AuditEntry, AuditStream, Delivery, Membership
from budgets.selectors.clock import utc_now
from budgets.services import alerts
from budgets.services.alerts import streaming, syslog
from budgets.services.alerts.streaming import stream_audit
from budgets.services.alerts.syslog import MOST_BYTES, Syslog, line_of, send_lines
from budgets.services.alerts.webhooks import put_into_outbox
from tests.alerts.conftest import Listener
from tests.builders import SmallFleet
from tests.controlplane.certificates import Authority
from tests.controlplane.processes import free_port
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.django_db
LINE = re.compile(
    rb"<109>1 \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ 127\.0\.0\.1 gpu-budget-portal - (\S+) - "
)


class Receiver:
    """A real syslog receiver on loopback: what was framed whole, of connections that ended well."""

    def __init__(self, port: int = 0, *, secured: ssl.SSLContext | None = None) -> None:
        self.lines: list[bytes] = []
        self.breaks = False  # reads, and then resets the connection
        self.is_open = False  # reads, and never closes it
        self._secured = secured
        self._server = socket.create_server(("127.0.0.1", port))
        self._server.settimeout(PATIENCE_S)
        self.port: int = self._server.getsockname()[1]
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join(PATIENCE_S)

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                peer, _ = self._server.accept()
                with peer, suppress(OSError):
                    self._take(peer)

    def _take(self, peer: socket.socket) -> None:
        peer.settimeout(PATIENCE_S)
        stream = self._secured.wrap_socket(peer, server_side=True) if self._secured else peer
        if self.breaks:
            stream.recv(4_096)
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return
        told = b""
        while piece := stream.recv(65_536):
            told += piece
        if self.is_open:
            self._over.wait(PATIENCE_S)
        while told:
            length, _, rest = told.partition(b" ")
            self.lines.append(rest[: int(length)])
            told = rest[int(length) :]
        stream.close()

    @property
    def ids(self) -> list[int]:
        return [document(line)["id"] for line in self.lines]


def document(line: bytes) -> dict:
    found = LINE.match(line)
    assert found, line
    told: dict = json.loads(line[found.end() :])
    assert told["action"][:32].encode() == found[1]
    return told


@contextmanager
def receiving(port: int = 0, **how) -> Iterator[Receiver]:
    found = Receiver(port, **how)
    try:
        yield found
    finally:
        found.close()


@pytest.fixture
def receiver(settings) -> Iterator[Receiver]:
    with receiving() as found:
        settings.PORTAL_AUDIT_SYSLOG = f"tcp://127.0.0.1:{found.port}"
        yield found


def entry(subject: str = "x:1", **more) -> AuditEntry:
    return services.audit(None, "test.x", subject, **more)


def keys() -> list[int]:
    return list(AuditEntry.objects.order_by("pk").values_list("pk", flat=True))


def later(hours: int = 1) -> time_machine.travel:
    return time_machine.travel(utc_now() + timedelta(hours=hours), tick=False)


def test_a_syslog_over_tcp_has_every_entry_once_and_in_order(fleet: SmallFleet, receiver: Receiver):
    done = stream_audit()
    assert (done["sent"], done["failed"]) == (len(keys()), 0) and done[
        "sent"
    ] > streaming.BATCH / 10
    entry()
    assert stream_audit() == {"sent": 1, "failed": 0}
    assert stream_audit() == {"sent": 0, "failed": 0}
    assert receiver.ids == keys()


def test_more_than_a_batch_goes_in_one_run(
    fleet: SmallFleet, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(streaming, "BATCH", 3)
    assert stream_audit()["sent"] == len(keys()) > 9
    assert receiver.ids == keys()


def test_a_syslog_over_tls_is_believed_by_its_certificate(
    settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    entry()
    authority = Authority(tmp_path)
    pair = authority.server("siem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    with receiving(secured=context) as found:
        settings.PORTAL_AUDIT_SYSLOG = f"tls://127.0.0.1:{found.port}"
        assert stream_audit() == {"sent": 0, "failed": 1}, "by an authority that nobody named"
        assert "SSLCertVerificationError" in AuditStream.objects.get().problem
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.pair.certificate))
        with later():
            assert stream_audit() == {"sent": 1, "failed": 0}
        assert found.ids == keys()


def test_a_syslog_over_udp_gets_a_datagram_an_entry(settings):
    entry("x:1"), entry("x:2")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as found:
        found.bind(("127.0.0.1", 0))
        found.settimeout(PATIENCE_S)
        settings.PORTAL_AUDIT_SYSLOG = f"udp://127.0.0.1:{found.getsockname()[1]}"
        assert stream_audit() == {"sent": 2, "failed": 0}
        assert [document(found.recv(65_536))["subject"] for _ in range(2)] == ["x:1", "x:2"]


def test_nothing_is_lost_while_the_receiver_is_away(settings):
    port = free_port()
    settings.PORTAL_AUDIT_SYSLOG = f"tcp://127.0.0.1:{port}"
    for number in range(8):
        entry(f"x:{number}")
        with later(number):
            assert stream_audit() == {"sent": 0, "failed": 1}
    stream = AuditStream.objects.get()
    assert (stream.position, stream.failures) == (0, 8)
    assert stream.problem == f"no syslog at 127.0.0.1:{port} (ConnectionRefusedError)"
    with receiving(port) as back:
        assert stream_audit() == {"sent": 0, "failed": 0}, "not before its pause is over"
        with later(24):
            assert stream_audit() == {"sent": 8, "failed": 0}
        assert back.ids == keys()
    stream.refresh_from_db()
    assert (stream.failures, stream.problem) == (0, "")


@pytest.mark.parametrize("how", ["breaks", "is_open"])
def test_what_nobody_is_known_to_have_read_is_sent_again(
    receiver: Receiver, how: str, monkeypatch: pytest.MonkeyPatch
):
    entry()
    monkeypatch.setattr(syslog, "DEADLINE_S", 3.0)
    setattr(receiver, how, True)
    assert stream_audit() == {"sent": 0, "failed": 1}
    assert AuditStream.objects.get().position == 0
    if how == "breaks":
        receiver.breaks = False
        monkeypatch.setattr(syslog, "DEADLINE_S", PATIENCE_S)
        with later():
            assert stream_audit() == {"sent": 1, "failed": 0}
        assert receiver.ids == keys()


def missing_since(key: int) -> list[int]:
    """Keys after this one: other tests have used up those before it on PostgreSQL."""
    return [row for row in AuditStream.objects.get().missing if row > key]


def test_an_entry_whose_transaction_ended_late_is_sent_all_the_same(receiver: Receiver):
    first = entry("x:1").pk
    AuditEntry.objects.create(pk=first + 3, actor_name="portal", action="test.x", subject="x:4")
    assert stream_audit()["sent"] == 2
    assert missing_since(first) == [first + 1, first + 2]
    AuditEntry.objects.create(pk=first + 2, actor_name="portal", action="test.x", subject="x:3")
    assert stream_audit()["sent"] == 1
    assert receiver.ids == [first, first + 3, first + 2]
    assert missing_since(first) == [first + 1]


def test_what_never_came_is_forgotten_in_the_end(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(streaming, "LATE", 5)
    first = entry().pk
    for key in (first + 2, first + 20, first + 21):
        AuditEntry.objects.create(pk=key, actor_name="portal", action="test.x", subject="x:1")
        stream_audit()
    assert AuditStream.objects.get().missing == [first + 17, first + 18, first + 19]


@pytest.mark.postgres
@pytest.mark.django_db(transaction=True)
def test_an_open_transaction_holds_up_nobody_and_loses_nothing(receiver: Receiver):
    written, over = threading.Event(), threading.Event()

    def slowly() -> None:
        with transaction.atomic():
            entry("x:slow")
            written.set()
            over.wait(PATIENCE_S)
        connection.close()

    thread = threading.Thread(target=slowly)
    thread.start()
    assert written.wait(PATIENCE_S)
    entry("x:quick")
    assert stream_audit()["sent"] == 1
    over.set()
    thread.join(PATIENCE_S)
    assert stream_audit()["sent"] == 1
    assert [document(line)["subject"] for line in receiver.lines] == ["x:quick", "x:slow"]


def test_one_sends_at_a_time(receiver: Receiver):
    entry()
    AuditStream.objects.create(receiver="syslog", next_at=utc_now())
    mine, theirs = AuditStream.objects.get(), AuditStream.objects.get()
    assert streaming._go_on(mine) == 1
    assert streaming._go_on(theirs) == 0
    assert receiver.ids == keys()


def test_who_was_overtaken_notes_nothing(receiver: Receiver, monkeypatch: pytest.MonkeyPatch):
    entry()

    def slow(to: Syslog, lines: list[bytes]) -> None:
        AuditStream.objects.update(turn=7, position=99)  # somebody else, after the claim was over
        send_lines(to, lines)

    monkeypatch.setattr(streaming, "send_lines", slow)
    assert stream_audit() == {"sent": 0, "failed": 0}
    assert AuditStream.objects.get().position == 99


def test_text_of_strangers_makes_no_second_line(receiver: Receiver):
    entry("x:1\n<109>1 forged", reason="\r\n“\U0001f600”\u2028")
    assert stream_audit()["sent"] == 1
    [line] = receiver.lines
    assert b"\n" not in line and b"\r" not in line
    assert document(line)["subject"] == "x:1\n<109>1 forged"


def test_a_long_entry_goes_without_what_changed_and_says_so():
    told = {"id": 1, "at": "2026-03-01T00:00:00Z", "action": "test.x", "after": {"x": "y" * 9_000}}
    line = line_of(told, host="127.0.0.1")
    assert len(line) <= MOST_BYTES
    assert document(line) | {"before": {}} == {**told, "before": {}, "after": {}, "cut": True}


@pytest.mark.parametrize(
    "address", ["siem:514", "http://siem", "tcp://", "tcp://siem:x", "tls://u@siem", "tcp://siem/x"]
)
def test_what_is_no_syslog_is_refused(address: str):
    with pytest.raises(ValueError):
        Syslog.of(address)


def test_addresses_of_a_syslog_have_their_usual_ports():
    assert [Syslog.of(f"{scheme}://siem").port for scheme in ("tls", "tcp", "udp")] == [
        *(6514, 601, 514)
    ]


@pytest.fixture
def hook(fleet: SmallFleet, listener: Listener) -> Listener:
    alerts.create_webhook(fleet.admin, name="SIEM", url=listener.url, takes_audit_log=True)
    return listener


def told(listener: Listener) -> list[int]:
    bodies = [json.loads(body) for _, _, body in listener.requests]
    assert all(body["kind"] == "audit" for body in bodies)
    return [row["id"] for body in bodies for row in body["entries"]]


def test_a_webhook_has_every_entry_signed_and_in_order(hook: Listener):
    assert stream_audit() == {"sent": len(keys()), "failed": 0}
    assert told(hook) == keys()
    _, headers, _ = hook.requests[0]
    assert headers["Portal-Signature"].startswith("t=")
    assert headers["Portal-Delivery"].startswith(f"audit-{keys()[0]}-")


def test_a_webhook_that_refuses_gets_all_of_it_later(hook: Listener):
    hook.status = 503
    assert stream_audit() == {"sent": 0, "failed": 1}
    assert AuditStream.objects.get().problem == "127.0.0.1 answered with status 503"
    hook.status = 204
    hook.requests.clear()
    with later():
        stream_audit()
    assert told(hook) == keys()


def test_a_webhook_of_the_log_is_told_no_alert_and_one_of_alerts_no_entry(
    hook: Listener, fleet: SmallFleet
):
    alerts.create_webhook(fleet.admin, name="Team", url=hook.url)
    put_into_outbox(Q(), [], entry=entry(), next_at=utc_now())
    assert [row.webhook.name for row in Delivery.objects.all()] == ["Team"]
    assert [stream.webhook.name for stream in AuditStream.objects.all()] == ["SIEM"]


def test_a_webhook_whose_maker_lost_the_role_gets_nothing(hook: Listener, fleet: SmallFleet):
    Membership.objects.create(user=fleet.owner, role="admin")
    for row in Membership.objects.filter(user=fleet.admin):
        services.revoke_role(None, membership=row)
    assert stream_audit() == {"sent": 0, "failed": 1}
    assert hook.requests == []
    assert (
        "answers for the webhook and no longer has the finance role"
        in AuditStream.objects.get().problem
    )


def test_a_webhook_that_was_removed_gets_nothing(hook: Listener, fleet: SmallFleet):
    alerts.remove_webhook(fleet.admin, webhook=AuditStream.objects.get().webhook)
    assert stream_audit() == {"sent": 0, "failed": 0}
    assert hook.requests == []


def test_no_private_address_gets_the_log_without_the_setting(hook: Listener, settings):
    settings.PORTAL_WEBHOOK_PRIVATE = False
    assert stream_audit() == {"sent": 0, "failed": 1}
    assert hook.requests == []


def test_the_log_is_sent_as_a_whole(fleet: SmallFleet):
    with pytest.raises(Rejected, match="as a whole"):
        alerts.create_webhook(
            fleet.admin,
            name="SIEM",
            url="https://siem.example.com/",
            account=fleet.acme,
            takes_audit_log=True,
        )
