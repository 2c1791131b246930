"""Pages of a large fleet at work on PostgreSQL.

1,000 workspaces, a million intervals, 20 clusters with their objects, 10,000 jobs in states, 500
requests, 20,000 audit entries. Each page through the whole stack in one process; then over HTTP
through gunicorn as the image starts it, by one client and by 20 at once.
"""

from __future__ import annotations

import http.client
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from django.conf import settings
from django.test import Client
from django.urls import reverse

from budgets.models import Membership, Role, User, Workspace
from clusters.models import WorkloadState
from tests.controlplane.processes import free_port
from tests.perf import fleet_rows, life_rows
from tests.perf.bench import Figure, load_as_web

WORKSPACES, ACCOUNTS, INTERVALS = 1_000, 50, 1_000_000
CLUSTERS, JOBS, REQUESTS, ENTRIES = 20, 10_000, 500, 20_000
ROUNDS = 40
LIMIT_MS = 100
CLIENTS, VISITS = 20, 4
# As the Dockerfile starts it.
GUNICORN = ("portal.wsgi:application", "--workers", "2", "--threads", "4", "--no-control-socket")
Page = tuple[str, str]


def measure() -> list[Figure]:
    """Milliseconds per page; the first two requests of each warm templates and plans."""
    load_as_web()
    users = fleet_rows.people()
    made = fleet_rows.promises(accounts=ACCOUNTS, workspaces=WORKSPACES)
    fleet_rows.intervals(INTERVALS)
    fleet_rows.hour_facts()
    life_rows.fleet_at_work(clusters=CLUSTERS, jobs=JOBS, requests=REQUESTS, entries=ENTRIES)
    life_rows.analyze()
    Membership.objects.create(user=users["owner"], role=Role.OWNER, workspace=made[0])
    pages = _pages(made[0])
    figures = [_one_by_one(name, users[who], address) for name, (who, address) in pages.items()]
    return [*figures, *_over_http(pages, users)]


def _pages(workspace: Workspace) -> dict[str, Page]:
    namespace = workspace.namespace
    job = WorkloadState.objects.filter(namespace=namespace, is_remote_copy=False).first()
    assert job is not None
    return {
        "home_owner": ("owner", reverse("home")),
        "home_admin": ("admin", reverse("home")),
        "workspace": ("owner", reverse("workspace", args=[namespace])),
        "budget_form": ("owner", reverse("budget", args=[namespace])),
        "history": ("owner", reverse("history", args=[namespace])),
        "usage_owner": ("owner", reverse("usage")),
        "usage_finance_day": ("finance", f"{reverse('usage')}?step=day"),
        "usage_finance_hour": ("finance", f"{reverse('usage')}?days=7"),
        "usage_finance_workspaces": ("finance", f"{reverse('usage')}?days=7&split=workspace"),
        "usage_finance_clusters": ("finance", f"{reverse('usage')}?days=7&split=cluster"),
        "usage_finance_month": ("finance", f"{reverse('usage')}?days=30&split=account"),
        "usage_lending": ("finance", reverse("usage_lending")),
        "usage_lending_owner": ("owner", reverse("usage_lending")),
        "usage_idle": ("finance", f"{reverse('usage_idle')}?days=30"),
        "usage_capacity": ("finance", f"{reverse('usage_capacity')}?days=30"),
        "fleet": ("admin", reverse("fleet")),
        "jobs": ("admin", reverse("jobs")),
        "jobs_owner": ("owner", reverse("jobs")),
        "job": ("owner", reverse("job", args=[job.cluster.slug, job.uid])),
        "clusters": ("admin", reverse("clusters")),
        "cluster": ("admin", reverse("cluster", args=["worker-1"])),
        "requests": ("admin", reverse("requests")),
        "audit": ("admin", reverse("audit")),
    }


def _one_by_one(name: str, user: User, address: str) -> Figure:
    client = Client()
    client.force_login(user)
    values = []
    for number in range(ROUNDS + 2):
        begun = time.perf_counter()
        answer = client.get(address)
        seconds = time.perf_counter() - begun
        assert answer.status_code == 200, (name, answer.status_code)
        if number >= 2:
            values.append(1000 * seconds)
    notes = {"bytes": len(answer.content)}
    return Figure(name, values, limit=LIMIT_MS, unit="ms", notes=notes)


def _over_http(pages: Mapping[str, Page], users: Mapping[str, User]) -> list[Figure]:
    """All pages in turn, by one client and by twenty beside one another."""
    cookies = {}
    for name, user in users.items():
        client = Client()
        client.force_login(user)
        cookies[name] = client.cookies[settings.SESSION_COOKIE_NAME].value
    tour = [(cookies[who], address) for who, address in pages.values()]
    with _gunicorn() as port:
        _visit(port, tour * 2)
        alone = _visit(port, tour * VISITS)
        begun = time.perf_counter()
        with ThreadPoolExecutor(CLIENTS) as pool:
            turned = [tour[n:] + tour[:n] for n in range(CLIENTS)]
            crowd = list(pool.map(lambda each: _visit(port, each * VISITS), turned))
        took = time.perf_counter() - begun
    beside = [value for each in crowd for value in each]
    load = {"clients": CLIENTS, "pages_a_second": round(len(beside) / took, 1)}
    return [
        Figure("http_one_client", alone, limit=LIMIT_MS, unit="ms"),
        Figure(
            "http_20_clients",
            beside,
            unit="ms",
            notes={**load, "mean": round(statistics.mean(beside), 1)},
        ),
    ]


def _visit(port: int, tour: list[tuple[str, str]]) -> list[float]:
    """Milliseconds of each page of a tour, over one connection."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    values = []
    for cookie, address in tour:
        begun = time.perf_counter()
        headers = {"Cookie": f"{settings.SESSION_COOKIE_NAME}={cookie}", "Host": "testserver"}
        connection.request("GET", address, headers=headers)
        answer = connection.getresponse()
        answer.read()
        values.append(1000 * (time.perf_counter() - begun))
        assert answer.status == 200, (address, answer.status)
    connection.close()
    return values


@contextmanager
def _gunicorn() -> Iterator[int]:
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="portal-bench-") as folder:
        environment = {**os.environ, "PORTAL_STATIC_ROOT": folder}
        manage = [sys.executable, "manage.py", "collectstatic", "--no-input", "--verbosity=0"]
        subprocess.run(manage, env=environment, check=True)
        command = [sys.executable, "-m", "gunicorn", *GUNICORN, "--bind", f"127.0.0.1:{port}"]
        with Path(folder, "server.log").open("wb") as log:
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
            try:
                _wait_for(port)
                yield port
            finally:
                process.terminate()
                process.wait(30)


def _wait_for(port: int) -> None:
    ends = time.monotonic() + 60
    while time.monotonic() < ends:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
            return
        time.sleep(0.1)
    raise TimeoutError("gunicorn did not start")
