"""A steady load of pages and API requests, as people and scripts make it; what failed, how long."""

from __future__ import annotations

import http.client
import itertools
import json
import re
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, Self
from urllib.parse import urlencode

TIMEOUT_S: Final = 15.0
AT_ONCE: Final = 16
"""More than are ever under way at this pace, unless nothing is answered any more."""
AGAIN, AGAIN_AFTER_S = 10, 0.2
PAGES: Final = (
    "/", "/workspaces/", "/workspaces/acme-vision/", "/jobs/", "/usage/", "/fleet/", "/clusters/",
    "/alerts/", "/audit/", "/exports/",
)  # fmt: skip
READS: Final = ("me", "workspaces", "workloads", "usage", "fleet", "clusters", "audit", "exports")
DRAFT: Final = {"short": {"committed": 8, "burst": 16}}


@dataclass(frozen=True, slots=True)
class Asked:
    """One request.

    Attributes:
        at: Monotonic second of its beginning.
        seconds: Until its answer, or until there was none.
        method, path: What was asked.
        status: Of HTTP; 0 for no answer.
    """

    at: float
    seconds: float
    method: str
    path: str
    status: int

    @property
    def is_well(self) -> bool:
        return 200 <= self.status < 400


@dataclass(frozen=True, slots=True)
class Failure:
    """A request without a proper answer, and how long one could not have had it.

    Attributes:
        asked: The request.
        seconds: From its bad answer, or from its beginning where there was none, until the next
            good answer to a request of its method that was begun later.
    """

    asked: Asked
    seconds: float

    def text(self, since: float) -> str:
        status = self.asked.status or "no answer"
        where = f"{self.asked.at - since:7.1f} s  {self.asked.method} {self.asked.path}: {status}"
        return f"{where}; for {self.seconds:.2f} s"


def failures(requests: Iterable[Asked]) -> list[Failure]:
    """Every failure, in order; one that nothing followed lasts for ever."""
    rows = sorted(requests, key=lambda row: row.at)
    found = []
    for row in rows:
        if not row.is_well:
            after = (
                other.at + other.seconds
                for other in rows
                if other.is_well and other.method == row.method and other.at > row.at
            )
            since = row.at + (row.seconds if row.status else 0.0)
            found.append(Failure(row, max(0.0, min(after, default=float("inf")) - since)))
    return found


class Load:
    """Requests at a steady pace; a context manager.

    Pages are asked for by an admin with a session and the API with a token: reads, drafts that
    write nothing, and now and then finance asks for a file. A draft without a good answer is sent
    again at once, as people do; reads come often enough.

    Args:
        port: Of nginx.
        per_s: Requests a second.
        export_every_s: Between two wishes for a file.
    """

    def __init__(self, port: int, *, per_s: float, export_every_s: float) -> None:
        self._port, self._per_s, self._export_every_s = port, per_s, export_every_s
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="load")
        self._pacer = threading.Thread(target=self._pace, name="load", daemon=True)
        self.requests: list[Asked] = []
        self.wishes: list[int] = []

    def __enter__(self) -> Self:
        self._session = self._sign_in("admin")
        self._admin, self._finance = self._token("admin"), self._token("fin")
        self._pacer.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._pacer.join(30)
        self._pool.shutdown()

    def _sign_in(self, name: str) -> dict[str, str]:
        _, page, cookies = self._send("GET", "/login/", None, {})
        [word] = re.findall(r'name="csrfmiddlewaretoken" value="(\w+)"', page)[:1]
        form = {"username": name, "password": f"run-{name}-word", "csrfmiddlewaretoken": word}
        headers = {"Cookie": cookies, "Content-Type": "application/x-www-form-urlencoded"}
        status, _, cookies = self._send("POST", "/login/", urlencode(form), headers)
        assert status == 302, status
        return {"Cookie": cookies}

    def _token(self, name: str) -> dict[str, str]:
        login = {"username": name, "password": f"run-{name}-word", "scope": "write"}
        status, told, _ = self._send("POST", "/api/v1/login", login, {})
        assert status == 201, (status, told)
        return {"Authorization": f"Token {json.loads(told)['token']}"}

    def _pace(self) -> None:
        begun = time.monotonic()
        exports = itertools.count(1)
        next_export = begun + self._export_every_s
        turns = itertools.cycle(_turns())
        for number in itertools.count():
            if self._stop.wait(max(0.0, begun + number / self._per_s - time.monotonic())):
                return
            if time.monotonic() >= next_export:
                next_export += self._export_every_s
                self._pool.submit(self._wish, next(exports))
            method, path = next(turns)
            self._pool.submit(self._ask, method, path)

    def _ask(self, method: str, path: str) -> None:
        is_api = path.startswith("/api/")
        body = DRAFT if method == "POST" else None
        for _ in range(AGAIN):
            status = self._timed(method, path, body, self._admin if is_api else self._session)
            if method == "GET" or 0 < status < 500:
                return
            time.sleep(AGAIN_AFTER_S)

    def _wish(self, number: int) -> None:
        """For a file; its status is kept, for whether it is written once."""
        wish = {"dataset": "charges", "format": "csv", "period": time.strftime("%Y-%m")}
        self.wishes.append(self._timed("POST", "/api/v1/exports", wish, self._finance))

    def _timed(self, method: str, path: str, body: Any, headers: dict[str, str]) -> int:
        begun = time.monotonic()
        try:
            status, _, _ = self._send(method, path, body, headers)
        except (OSError, http.client.HTTPException):
            status = 0
        row = Asked(begun, time.monotonic() - begun, method, path, status)
        with self._lock:
            self.requests.append(row)
        return status

    def _send(
        self, method: str, path: str, body: Any, headers: dict[str, str]
    ) -> tuple[int, str, str]:
        """Status, body and cookies of an answer, over a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=TIMEOUT_S)
        if isinstance(body, dict):
            body, headers = json.dumps(body), headers | {"Content-Type": "application/json"}
        try:
            connection.request(method, path, body=body, headers=headers)
            answer = connection.getresponse()
            told = answer.read().decode(errors="replace")
            given = answer.headers.get_all("Set-Cookie") or []
            return answer.status, told, "; ".join(each.partition(";")[0] for each in given)
        finally:
            connection.close()


def _turns() -> Sequence[tuple[str, str]]:
    """Pages and reads in turn, and after every few of them a draft."""
    reads = [("GET", path) for path in PAGES] + [("GET", f"/api/v1/{name}") for name in READS]
    draft = ("POST", "/api/v1/workspaces/acme-vision/budget/preview")
    turns: list[tuple[str, str]] = []
    for number, read in enumerate(reads):
        turns.append(read)
        if number % 6 == 5:
            turns.append(draft)
    return turns
