"""The whole test run, lane by lane: ``python -m tests.lanes [LANE …]``.

A lane whose real part is missing on this machine is named in one line with how to get it and
skipped; with ``CI=true`` a missing part is a failure. The last lines are the summary.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.servers import Missing, postgres_server, redis_server

ROOT = Path(__file__).resolve().parent.parent
PYTHON = sys.executable
BIN = Path(PYTHON).parent
IN_CI = os.environ.get("CI", "").lower() == "true"
# Two processes, a module whole in one of them: a module may share what is costly to make.
BESIDE = ("-n", "2", "--dist", "loadscope")
REAL_MARKS = ("embedded", "controlplane", "postgres", "redis", "browser", "slow")


@dataclass(frozen=True)
class Outcome:
    lane: str
    state: str  # passed, failed, missing
    seconds: float
    note: str = ""


def run(*command: str | Path, env: Mapping[str, str] | None = None) -> bool:
    """One command, its output passed through; whether it ended well."""
    print("$", " ".join(str(c).replace(str(BIN) + "/", "") for c in command), flush=True)
    return subprocess.run(command, cwd=ROOT, env={**os.environ, **(env or {})}).returncode == 0


def pytest(expression: str, *arguments: str, env: Mapping[str, str] | None = None) -> bool:
    return run(PYTHON, "-m", "pytest", "-q", "-m", expression, *arguments, env=env)


def static() -> bool:
    env = {"DJANGO_SETTINGS_MODULE": "tests.settings"}
    commands: list[list[str | Path]] = [
        [BIN / "ruff", "check", "."],
        [BIN / "ruff", "format", "--check", "."],
        [BIN / "lint-imports", "--no-logo"],
        [BIN / "mypy", "budgets", "clusters", "portal"],
        [PYTHON, "manage.py", "check"],
        [PYTHON, "manage.py", "makemigrations", "--check", "--dry-run"],
        [BIN / "djade", "--check", *sorted(ROOT.glob("templates/**/*.html"))],
        [BIN / "typos"],
    ]
    results = [run(*command, env=env) for command in commands]  # all of them, then the verdict
    return all(results)


def unit() -> bool:
    return pytest(" and ".join(f"not {mark}" for mark in REAL_MARKS), *BESIDE)


def embedded() -> bool:
    return pytest("embedded and not controlplane and not slow and not browser", *BESIDE)


def postgres() -> bool:
    with postgres_server() as url:
        env = {"DATABASE_URL": url}
        names = ("budgets", "billing", "clusters", "explained", "web", "api", "postgres")
        folders = [f"tests/{name}" for name in names]
        present = [name for name in folders if (ROOT / name).is_dir()]
        return pytest("not controlplane and not browser and not slow", *present, *BESIDE, env=env)


def redis() -> bool:
    with redis_server() as url:
        return pytest("redis and not slow", env={"TEST_REDIS_URL": url})


def controlplane() -> bool:
    if not run(PYTHON, "-m", "tests.controlplane.build"):
        raise Missing("no control planes: Go 1.26 and its module proxy are needed to build them")
    return pytest("controlplane and not slow")


def browser() -> bool:
    if not (shutil.which("chromium") or os.environ.get("CHROMIUM")):
        raise Missing("no chromium: install Debian's chromium, or set CHROMIUM to its path")
    return pytest("browser and not slow")


LANES: dict[str, Callable[[], bool]] = {
    "static": static,
    "unit": unit,
    "embedded": embedded,
    "postgres": postgres,
    "redis": redis,
    "browser": browser,
    "controlplane": controlplane,
}


def run_lane(name: str) -> Outcome:
    print(f"\n=== lane {name} ===", flush=True)
    begun = time.monotonic()
    try:
        state, note = ("passed" if LANES[name]() else "failed"), ""
    except Missing as missing:
        state, note = ("failed" if IN_CI else "missing"), str(missing)
    return Outcome(name, state, time.monotonic() - begun, note)


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in LANES]
    if unknown:
        print(f"unknown lane {unknown[0]!r}; there are: {', '.join(LANES)}")
        return 2
    if not (ROOT.parent / "shared" / "conformance").is_dir():
        print("recorded data: ../shared is missing; tests that replay it are skipped")
    outcomes = []
    with contextlib.suppress(KeyboardInterrupt):
        outcomes = [run_lane(name) for name in names or LANES]
    print("\n=== summary ===")
    for outcome in outcomes:
        print(f"{outcome.lane:13} {outcome.state:8} {outcome.seconds:7.1f} s  {outcome.note}")
    complete = len(outcomes) == len(names or LANES)
    return 0 if complete and all(o.state != "failed" for o in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
