"""A fleet with metered hours: what rules look at."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from budgets.models import MeterState, UsageRecord
from tests.builders import SmallFleet, hours

HOUR_S = 3600


def used(fleet: SmallFleet, hour: float, *, committed=0, used=0, burst=0, slug="h100") -> None:
    """An hour fact of workspace vision, in whole GPUs."""
    UsageRecord.objects.create(
        workspace=fleet.vision,
        flavor=fleet.flavors[slug],
        hour=hours(hour),
        start=hours(hour),
        committed=committed * HOUR_S,
        committed_used=used * HOUR_S,
        idle=(committed - used) * HOUR_S,
        burst=burst * HOUR_S,
    )


def metered_until(hour: float) -> None:
    MeterState.objects.update_or_create(
        cluster="gpu-east", defaults={"metered_until": hours(hour), "complete_until": hours(hour)}
    )


@dataclass
class Listener:
    """A real HTTP server on loopback that keeps what it was sent."""

    url: str
    status: int = 204
    requests: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)


@pytest.fixture
def listener(settings) -> Iterator[Listener]:
    settings.PORTAL_WEBHOOK_PRIVATE = True
    found = Listener("")

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            found.requests.append((self.path, dict(self.headers), body))
            self.send_response(found.status)
            if 300 <= found.status < 400:
                self.send_header("Location", found.url)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        found.url = f"http://127.0.0.1:{server.server_port}/alerts?team=gpu"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield found
        server.shutdown()
        thread.join(timedelta(seconds=5).total_seconds())
