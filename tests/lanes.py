"""The whole test run, lane by lane: ``python -m tests.lanes [LANE …]``.

Two lanes run beside each other, because those with real servers mostly wait; the last one, whose
test bounds seconds of a whole house, has the machine to itself. What a lane prints is shown whole
when it ends, so that no two mix; a lane named alone prints as it goes.

A lane whose real part is missing on this machine is named in one line with how to get it and
skipped; with ``CI=true`` a missing part is a failure. The last lines are the summary; before it
stands again what did not hold in tests that failed, which is far above by then.

No test is tried twice: one that fails in a full machine waits for time where it should wait for an
event, and is mended there.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from tests.servers import Missing, has_postgres, postgres_server, redis_server
from tests.signin.packages import packages

ROOT = Path(__file__).resolve().parent.parent
PYTHON = sys.executable
BIN = Path(PYTHON).parent
IN_CI = os.environ.get("CI", "").lower() == "true"
# Processes, a module whole in one of them: a module may share what is costly to make. As many as
# most machines of a pipeline have cores; one more for tests with clusters, which mostly wait.
BESIDE = ("-n2", "--dist=loadscope")
WAITING = ("-n3", "--dist=loadscope")
SETTINGS = {"DJANGO_SETTINGS_MODULE": "tests.settings"}
# To read all four thousand tests costs more than to run a few of them.
PLACES = {
    "controlplane": (
        "tests/acting",
        "tests/chart",
        "tests/controlplane",
        "tests/faults",
        "tests/fuzz",
        "tests/kube",
        "tests/policies",
        "tests/reconcile",
        "tests/shapes",
        "tests/stories",
        "tests/test_rehearse.py",
    ),
    "embedded": (
        "tests/acting",
        "tests/api/test_clusters.py",
        "tests/clusters",
        "tests/explained",
        "tests/faults",
        "tests/fuzz",
        "tests/kube",
        "tests/metrics",
        "tests/reconcile",
        "tests/stories",
        "tests/test_demo.py",
        "tests/test_rehearse.py",
        "tests/web/test_clusters.py",
    ),
    "postgres": (
        "tests/acting",
        "tests/alerts/test_streaming.py",
        "tests/api",
        "tests/billing",
        "tests/budgets",
        "tests/clusters",
        "tests/explained",
        "tests/reconcile/test_event_retention.py",
        "tests/reconcile/test_usage.py",
        "tests/reconcile/test_usage_build.py",
        "tests/spending",
        "tests/test_beat.py",
        "tests/test_migration_steps.py",
        "tests/test_migrations.py",
        "tests/web",
    ),
    "redis": ("tests/faults",),
    "office": ("tests/exports",),
    "browser": ("tests/browser",),
    "company": ("tests/signin",),
    "accidents": ("tests/faults",),
}
# The core and its rules: what a change breaks first, and what needs no database.
QUICK = (
    "tests/alerts",
    "tests/billing",
    "tests/budgets",
    "tests/clusters",
    "tests/explained",
    "tests/kube",
    "tests/kueue",
    "tests/ledger",
    "tests/manifests",
    "tests/shadow",
    "tests/spending",
    "tests/test_docs.py",
    "tests/test_migration_rules.py",
    "tests/test_readme.py",
    "tests/test_templates.py",
)
# Whole fleets, played for long: a quarter of the time, and the last to see what a change broke.
LONG = (
    "tests/explained/test_arithmetic.py",
    "tests/explained/test_forecast_simulation.py",
    "tests/kueue/test_random_fleets.py",
    "tests/kueue/test_topology_fleets.py",
)
# Pages and API are the same on each database. Where the whole run has PostgreSQL they run there;
# on SQLite a browser goes through them, and the unit lane by itself.
ON_EITHER = "on_either_database"
REAL_MARKS = (
    "embedded",
    "controlplane",
    "postgres",
    "redis",
    "browser",
    "office",
    "company",
    "accidents",
    "slow",
)


@dataclass(frozen=True)
class Outcome:
    lane: str
    state: str  # passed, failed, missing
    seconds: float
    note: str = ""
    failures: tuple[str, ...] = ()


class _Output(threading.local):
    """Where the commands of this thread's lane print to; None is the terminal."""

    file: IO[str] | None = None


_output = _Output()
_asked: set[str] = set()
_printing = threading.Lock()


def run(*command: str | Path, env: Mapping[str, str] | None = None) -> bool:
    """One command, its output passed through; whether it ended well."""
    line = " ".join(str(c).replace(str(BIN) + "/", "") for c in command)
    print("$", line, flush=True, file=_output.file)
    environment = {**os.environ, **(env or {})}
    ended = subprocess.run(
        command, cwd=ROOT, env=environment, stdout=_output.file, stderr=_output.file
    )
    return ended.returncode == 0


def pytest(expression: str, *arguments: str, env: Mapping[str, str] | None = None) -> bool:
    """The tests that a mark expression selects."""
    command = (PYTHON, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", expression)
    return run(*command, *arguments, "--durations=10", env=env)


def static() -> bool:
    # The quick lane collects its own.
    elsewhere = [f"--ignore={path}" for path in QUICK] if "quick" in _asked else []
    commands: list[list[str | Path]] = [
        [BIN / "ruff", "check", "."],
        [BIN / "ruff", "format", "--check", "."],
        [BIN / "lint-imports", "--no-logo"],
        [BIN / "mypy", "budgets", "clusters", "portal", "tests"],
        # With Django's own checks, which it begins with.
        [PYTHON, "manage.py", "makemigrations", "--check", "--dry-run"],
        [BIN / "djade", "--check", *sorted(ROOT.glob("templates/**/*.html"))],
        [BIN / "djangofmt", "--check", "templates"],
        [BIN / "typos"],
        [PYTHON, "-m", "tests.audit"],
        # What a test imports has to exist; mypy asks no attributes in tests.
        [PYTHON, "-m", "pytest", "-qqq", "-p", "no:cacheprovider", "--collect-only", *elsewhere],
    ]
    results = [run(*command, env=SETTINGS) for command in commands]  # all of them, then the verdict
    return all(results)


def quick() -> bool:
    # They are collected all the same: what they import has to exist.
    left_out = [f"--deselect={path}" for path in LONG]
    return pytest(_none_of("database", *REAL_MARKS), *QUICK, *left_out, *BESIDE)


def unit() -> bool:
    elsewhere = (ON_EITHER,) if "postgres" in _asked and has_postgres() else ()
    return pytest(_none_of(*REAL_MARKS, *elsewhere), *BESIDE)


def _none_of(*marks: str) -> str:
    return " and ".join(f"not {mark}" for mark in marks)


def embedded() -> bool:
    expression = "embedded and not controlplane and not slow and not browser"
    return pytest(expression, *PLACES["embedded"], *WAITING)


def postgres() -> bool:
    with postgres_server() as url:
        expression = "not controlplane and not browser and not slow"
        # Each process makes its database as a copy of this one, and finds the tables in it.
        template = {"DATABASE_URL": url.replace("/postgres", "/template1")}
        if not run(PYTHON, "manage.py", "migrate", "-v0", env={**SETTINGS, **template}):
            return False
        env = {"DATABASE_URL": url}
        return pytest(expression, *PLACES["postgres"], *BESIDE, env=env)


def redis() -> bool:
    with redis_server() as url:
        return pytest("redis and not slow", *PLACES["redis"], env={"TEST_REDIS_URL": url})


def build_control_planes() -> bool:
    """Takes every core for minutes the first time, and a second when they are built."""
    return run(PYTHON, "-m", "tests.controlplane.build")


def controlplane() -> bool:
    if not build_control_planes():
        raise Missing("no control planes: Go 1.26 and its module proxy are needed to build them")
    return pytest("controlplane and not slow", *PLACES["controlplane"])


def office() -> bool:
    if not shutil.which("soffice"):
        raise Missing("no soffice: install Debian's libreoffice-calc-nogui")
    return pytest("office and not slow", *PLACES["office"])


def company() -> bool:
    packages()
    return pytest("company and not slow", *PLACES["company"])


def accidents() -> bool:
    if not has_postgres():
        raise Missing("no PostgreSQL server: install Debian's postgresql")
    return pytest("accidents and not slow", *PLACES["accidents"])


def browser() -> bool:
    if not (shutil.which("chromium") or os.environ.get("CHROMIUM")):
        raise Missing("no chromium: install Debian's chromium, or set CHROMIUM to its path")
    return pytest("browser and not slow", *PLACES["browser"])


# The longest first: two at once, whoever has ended takes the next. Quick is a part of unit.
LANES: dict[str, Callable[[], bool]] = {
    "controlplane": controlplane,
    "embedded": embedded,
    "postgres": postgres,
    "browser": browser,
    "redis": redis,
    "unit": unit,
    "quick": quick,
    "static": static,
    "office": office,
    "company": company,
    "accidents": accidents,
}
AT_ONCE = 2
LAST_AND_ALONE = "accidents"


def run_lane(name: str) -> Outcome:
    print(f"\n=== lane {name} ===", flush=True, file=_output.file)
    begun, note = time.monotonic(), ""
    try:
        state = "passed" if LANES[name]() else "failed"
    except Missing as missing:
        state, note = ("failed" if IN_CI else "missing"), str(missing)
    except RuntimeError as error:  # a server that did not start costs its lane alone
        state, note = "failed", str(error)
    return Outcome(name, state, time.monotonic() - begun, note)


def run_shown_whole(name: str) -> Outcome:
    """One lane; what it prints is shown when it has ended."""
    with _printing:
        print(f"lane {name} begins", flush=True)
    with tempfile.TemporaryFile("w+", errors="replace") as _output.file:
        outcome = run_lane(name)
        _output.file.seek(0)
        if outcome.state == "failed":
            outcome = replace(outcome, failures=tuple(failures_in(_output.file)))
            _output.file.seek(0)
        with _printing:
            shutil.copyfileobj(_output.file, sys.stdout)
            print(f"lane {name} {outcome.state}, {outcome.seconds:.0f} s", flush=True)
    return outcome


_FAILED_TEST = re.compile(r"_{3,} .+ _{3,}$")
_LINES_EACH, _CHARACTERS_EACH = 12, 1500


def failures_in(printed: Iterable[str]) -> Iterator[str]:
    """What pytest printed of failed tests: each by its name, and what did not hold, shortened."""
    left = 0
    for line in printed:
        if _FAILED_TEST.match(line):
            left = _LINES_EACH
            yield line.rstrip()
        elif left and line.startswith("E  "):
            left -= 1
            yield line.rstrip()[:_CHARACTERS_EACH]


def run_beside(names: Collection[str]) -> list[Outcome]:
    """The named lanes beside each other, in the order in which they begin."""
    if "controlplane" in names:
        build_control_planes()  # before the rest, not beside it: tests wait for servers in time
    beside = [lane for lane in LANES if lane in names and lane != LAST_AND_ALONE]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        outcomes = list(pool.map(run_shown_whole, beside))
    with ThreadPoolExecutor(1) as pool:
        last = [lane for lane in names if lane == LAST_AND_ALONE]
        return outcomes + list(pool.map(run_shown_whole, last))


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in LANES]
    if unknown:
        print(f"unknown lane {unknown[0]!r}; there are: {', '.join(LANES)}")
        return 2
    if not (ROOT.parent / "shared" / "conformance").is_dir():
        print("recorded data: ../shared is missing; tests that replay it are skipped")
    names = names or [name for name in LANES if name != "quick"]
    _asked.update(names)
    begun, outcomes = time.monotonic(), []
    with contextlib.suppress(KeyboardInterrupt):
        outcomes = [run_lane(names[0])] if len(names) == 1 else run_beside(names)
    for outcome in outcomes:
        if outcome.failures:
            print(f"\n=== failed in lane {outcome.lane} ===", *outcome.failures, sep="\n")
    print("\n=== summary ===")
    for outcome in outcomes:
        print(f"{outcome.lane:13} {outcome.state:8} {outcome.seconds:7.1f} s  {outcome.note}")
    print(f"all together {time.monotonic() - begun:.0f} s")
    complete = len(outcomes) == len(names)
    return 0 if complete and all(o.state != "failed" for o in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
