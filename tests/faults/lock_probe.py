"""How long writers wait while migrations run on a table of a million rows.

A PostgreSQL of its own, the scratch migrations of :mod:`tests.faults.trees` by the real
``migrate``, and writers that insert, change and read rows all the time. PostgreSQL itself says how
long each waits for a lock, and ends a statement that waits longer than the rule allows. At the end
one statement is run that the rules refuse, for comparison: with it the writers do wait.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import psycopg

from tests.faults.trees import APP, FIRST, KINDS, TABLE
from tests.servers import postgres_server

WAIT_S: Final = 1.0
"""So long at most may anybody wait for a lock."""
WRITERS, PACE_S, LOOK_S = 3, 0.02, 0.02
LONG_S: Final = 0.5
"""What takes longer than this meets a writer, if there is one."""
IN_ONE_STEP: Final = f"ALTER TABLE {TABLE} ALTER COLUMN n TYPE bigint"
WAITS: Final = """
SELECT coalesce(max(extract(epoch FROM clock_timestamp() - l.waitstart)), 0)::float8
FROM pg_locks l JOIN pg_stat_activity a USING (pid)
WHERE NOT l.granted AND a.application_name = 'writer'
"""
STATEMENTS: Final = (
    f"INSERT INTO {TABLE} (n) VALUES (%(n)s)",
    f"UPDATE {TABLE} SET n = %(n)s WHERE id = %(id)s",
    f"SELECT n FROM {TABLE} WHERE id = %(id)s",
)
_TOLD: Final = re.compile(r"Applying budgets\.(\w+)\.\.\.| OK\n")


@dataclass(slots=True)
class Step:
    """One migration, and what writers met meanwhile.

    Attributes:
        name: Of the migration.
        seconds: That it took.
        statements: Of writers that were under way meanwhile.
        slowest_s: Of these; a busy machine makes it longer, too.
        wait_s: The longest wait for a lock that PostgreSQL told of, looked at every 20 ms.
        refused: Statements that waited longer than :data:`WAIT_S` and were ended.
    """

    name: str
    seconds: float
    statements: int = 0
    slowest_s: float = 0.0
    wait_s: float = 0.0
    refused: int = 0

    def faults(self) -> Iterator[str]:
        if self.refused or self.wait_s > WAIT_S:
            yield f"{self.name}: writers waited {self.wait_s:.2f} s; {self.refused} were ended"
        if not self.statements and self.seconds > LONG_S:
            yield f"{self.name}: no writer was under way, so nothing was measured"


@dataclass(slots=True)
class Probe:
    """All of them.

    Attributes:
        rows: Of the table.
        steps: Of migrations that the rules allow.
        in_one_step: For comparison, what the rules refuse.
    """

    rows: int
    steps: list[Step] = field(default_factory=list)
    in_one_step: Step | None = None
    broken: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Did:
    begun: float
    ended: float
    is_refused: bool


class _Writers:
    """Threads that work on the table, each over a connection of its own. A context manager."""

    def __init__(self, url: str, *, rows: int) -> None:
        self._url, self._rows = url, rows
        self._stop = threading.Event()
        works = [self._write] * WRITERS + [self._look]
        self._threads = [
            threading.Thread(target=work, args=(n,), daemon=True) for n, work in enumerate(works)
        ]
        self.did: list[_Did] = []
        self.waits: list[tuple[float, float]] = []
        self.errors: list[str] = []

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(30)

    def _write(self, number: int) -> None:
        # Nothing is prepared, as with Django's connections.
        named = {"autocommit": True, "application_name": "writer", "prepare_threshold": None}
        limit = f"-c lock_timeout={round(1000 * WAIT_S)}"
        with psycopg.connect(self._url, options=limit, **named) as connection:  # type: ignore[arg-type]
            turn = number
            while not self._stop.wait(PACE_S):
                turn += WRITERS
                values = {"n": turn % 1000, "id": 1 + (turn * 7919) % self._rows}
                begun, is_refused = time.monotonic(), False
                try:
                    connection.execute(STATEMENTS[turn // WRITERS % len(STATEMENTS)], values)
                except psycopg.errors.LockNotAvailable:
                    is_refused = True
                except psycopg.Error as error:
                    self.errors.append(str(error)[:200])
                self.did.append(_Did(begun, time.monotonic(), is_refused))

    def _look(self, number: int) -> None:
        with psycopg.connect(self._url, autocommit=True) as connection:
            while not self._stop.wait(LOOK_S):
                row = connection.execute(WAITS).fetchone()
                if row and row[0]:
                    self.waits.append((time.monotonic(), row[0]))

    def met(self, name: str, begun: float, ended: float) -> Step:
        """What they met in a span of monotonic seconds."""
        did = [one for one in self.did if one.begun < ended and one.ended > begun]
        return Step(
            name,
            round(ended - begun, 2),
            len(did),
            round(max((one.ended - one.begun for one in did), default=0.0), 3),
            round(max((s for at, s in self.waits if begun < at < ended + LOOK_S), default=0.0), 3),
            sum(one.is_refused for one in did),
        )


def probe(tree: Path, environment: Mapping[str, str], *, rows: int) -> Probe:
    """Migrate a table of so many rows under writers.

    Args:
        tree: Of the code, with the scratch migrations.
        environment: Of its commands; the database is another one.
        rows: Of the table.

    Raises:
        AssertionError: ``migrate`` failed.
    """
    found = Probe(rows)
    with postgres_server() as url:
        settings = {**environment, "DATABASE_URL": url, "PYTHONPATH": str(tree)}
        for _ in _migrate(tree, settings, FIRST):
            pass
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"INSERT INTO {TABLE} SELECT generate_series(1, {rows:d})")
            connection.execute(f"SELECT setval(pg_get_serial_sequence('{TABLE}', 'id'), {rows:d})")
            connection.execute(f"VACUUM ANALYZE {TABLE}")
        with _Writers(url, rows=rows) as writers:
            spans = list(_migrate(tree, settings, [*KINDS][-1]))
            begun = time.monotonic()
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute(IN_ONE_STEP)
            ended = time.monotonic()
            time.sleep(PACE_S)
        found.steps = [writers.met(*span) for span in spans]
        found.in_one_step = writers.met(IN_ONE_STEP, begun, ended)
        found.broken += sorted(set(writers.errors))[:5]
    names = [step.name for step in found.steps]
    if names != [name for name in KINDS if name != FIRST]:
        found.broken.append(f"applied were {names}")
    # Those at the end are on tables that these writers leave alone.
    found.broken += [words for step in found.steps for words in step.faults()]
    return found


def _migrate(
    tree: Path, environment: Mapping[str, str], target: str
) -> Iterator[tuple[str, float, float]]:
    """Run the real command; each migration with the seconds of its begin and end."""
    command = [sys.executable, "-u", "manage.py", "migrate", APP, target, "--skip-checks"]
    with subprocess.Popen(
        command, cwd=tree, env=dict(environment), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        try:
            assert process.stdout is not None
            told, name, begun = "", "", 0.0
            while some := os.read(process.stdout.fileno(), 65_536):
                now = time.monotonic()
                told += some.decode(errors="replace")
                while found := _TOLD.search(told):
                    told = told[found.end() :]
                    if found[1]:
                        name, begun = found[1], now
                    elif name:
                        yield name, begun, now
                        name = ""
            assert process.wait() == 0, told[-2000:]
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()


def rows_of(probe: Probe) -> list[str]:
    """For people, as a table in Markdown."""
    steps: list[Any] = [*probe.steps, *([probe.in_one_step] if probe.in_one_step else [])]
    return [
        "| migration | took | statements | slowest | longest wait for a lock | ended after 1 s |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
        *(
            f"| {s.name} | {s.seconds:.2f} s | {s.statements} | {s.slowest_s:.3f} s | "
            f"{s.wait_s:.3f} s | {s.refused} |"
            for s in steps
        ),
    ]
