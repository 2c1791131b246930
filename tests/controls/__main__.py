"""``python -m tests.controls [--only WORD] [--beside N]``: take each guard out and see a test fail.

Each row of ``guards/*.toml`` is tried in a scratch copy of the tree. A test that passes without its
guard, or fails because the code does not run any more, is named; the whole is written to
``artifacts/controls.json``; exit status 1 unless every guard was missed by its tests.

``--sound`` takes nothing out: in the copy, too, each test of a row has to pass with its guard.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from threading import Lock

from tests.controls import ROOT, Guard, guards
from tests.servers import postgres_server, redis_server

REPORT = ROOT / "artifacts" / "controls.json"
LONGEST_S = 600
# The code does not run: that says nothing of the guard.
BROKEN = ("NameError", "SyntaxError", "ImportError", "IndentationError", "UnboundLocalError")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.controls", description=__doc__)
    parser.add_argument("--only", default="", help="rows whose tests or file have this word")
    parser.add_argument("--of", default="*", help="rows of guards/OF.toml alone")
    parser.add_argument("--beside", type=int, default=2, help="so many at once")
    parser.add_argument("--sound", action="store_true", help="take nothing out")
    given = parser.parse_args()
    rows = [row for row in guards(given.of) if given.only in " ".join((row.file, *row.tests))]
    with contextlib.ExitStack() as stack:
        servers = _servers({row.server for row in rows}, stack)
        # Tests of one server have one database.
        turns = {name: Lock() if name else contextlib.nullcontext() for name in servers}
        copies: queue.Queue[Path] = queue.Queue()
        for _ in range(given.beside):
            name = stack.enter_context(tempfile.TemporaryDirectory(prefix="portal-controls-"))
            copies.put(_copy_of_tree(Path(name)))
        if given.sound:
            return max(_passes(rows, copies.queue[0], name, at) for name, at in servers.items())

        def tried(row: Guard) -> tuple[Guard, str]:
            with turns[row.server]:
                copy = copies.get()
                try:
                    verdict = _tried(row, copy, servers[row.server])
                finally:
                    copies.put(copy)
            print(f"{verdict:14} {row.file}: {' '.join(row.tests)}", flush=True)
            return row, verdict

        with ThreadPoolExecutor(given.beside) as pool:
            found = list(pool.map(tried, rows))
    REPORT.parent.mkdir(exist_ok=True)
    told = [asdict(row) | {"verdict": verdict} for row, verdict in found]
    REPORT.write_text(json.dumps(told, indent=1) + "\n")
    noticed = sum(verdict == "noticed" for _, verdict in found)
    print(f"{noticed} of {len(found)} guards are missed when they are gone")
    return 0 if noticed == len(found) else 1


def _servers(names: set[str], stack: contextlib.ExitStack) -> Mapping[str, Mapping[str, str]]:
    """Environment of tests by the server that they need."""
    found: dict[str, Mapping[str, str]] = {name: {} for name in names}
    if "postgres" in names:
        url = stack.enter_context(postgres_server())
        template = {"DATABASE_URL": url.replace("/postgres", "/template1")}
        environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings", **template}
        migrate = (sys.executable, "manage.py", "migrate", "-v0")
        subprocess.run(migrate, cwd=ROOT, env=environment, check=True)
        found["postgres"] = {"DATABASE_URL": url}
    if "bare postgres" in names:
        found["bare postgres"] = {"DATABASE_URL": stack.enter_context(postgres_server())}
    if "redis" in names:
        found["redis"] = {"TEST_REDIS_URL": stack.enter_context(redis_server())}
    return found


def _passes(rows: Sequence[Guard], tree: Path, server: str, environment: Mapping[str, str]) -> int:
    """Exit status of all tests of a server with nothing taken out."""
    tests = sorted({test for row in rows if row.server == server for test in row.tests})
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests)
    return subprocess.run(command, cwd=tree, env={**os.environ, **environment}).returncode


def _copy_of_tree(folder: Path) -> Path:
    """The files that git knows, as they are now, beside the recorded data."""
    tree = folder / "tree"
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in listed.stdout.splitlines():
        source, target = ROOT / name, tree / name
        if source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)
    if (ROOT.parent / "shared").exists():
        (folder / "shared").symlink_to((ROOT.parent / "shared").resolve())
    return tree


def _tried(row: Guard, tree: Path, environment: Mapping[str, str]) -> str:
    """What the tests say without the guard: ``noticed``, or what is wrong."""
    texts: dict[Path, str] = {}
    for file, find, replace in row.places():
        path = tree / file
        texts.setdefault(path, path.read_text())
        path.write_text(path.read_text().replace(find, replace))
    try:
        # The first failure is enough, where one test has to fail.
        until = ("-x",) if len(row.tests) == 1 else ()
        status, told = _run((*until, *row.tests), tree, environment, seconds=LONGEST_S)
    except subprocess.TimeoutExpired:
        return "TOOK TOO LONG"
    finally:
        for path, text in texts.items():
            path.write_text(text)
    # What a test's teardown finds in the log is an error of pytest's.
    failed = [
        line.partition(" ")[2]
        for line in told
        if line.startswith("FAILED ")
        or (line.startswith("ERROR ") and "secrets are in the log" in line)
    ]
    if status not in (0, 1) or (status == 1 and not failed):
        return "DID NOT RUN"
    if any(f"- {error}" in line for line in failed for error in BROKEN):
        return "BROKEN"
    # One that is named without its parameters fails with one of them.
    missed = [
        test
        for test in row.tests
        if not any(line.startswith((f"{test} ", f"{test}[")) or line == test for line in failed)
    ]
    return f"NOT NOTICED by {', '.join(missed)};" if missed else "noticed"


def _run(
    arguments: Sequence[str], tree: Path, environment: Mapping[str, str], *, seconds: float
) -> tuple[int, list[str]]:
    """Exit status and lines of a pytest; one that takes too long ends with all that it started."""
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments)
    with subprocess.Popen(
        command,
        cwd=tree,
        # Wide enough for each error to stand beside its test.
        env={**os.environ, **environment, "COLUMNS": "999"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            told, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return process.returncode, told.splitlines()


if __name__ == "__main__":
    sys.exit(main())
