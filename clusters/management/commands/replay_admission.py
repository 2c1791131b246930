"""Replay recorded scheduler scenarios and say where the engine decides otherwise."""

from __future__ import annotations

import gzip
import json
from argparse import ArgumentParser
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from django.core.management.base import BaseCommand, CommandError

from clusters.kueue.cycle.replay import ReplayDifference, ScenarioResult, replay_line

_CHUNK = 16


class Command(BaseCommand):
    """``manage.py replay_admission FILE``."""

    help = (
        "Replay recorded scenarios of Kueue's scheduler with the portal's engine, and compare "
        "every admission, preemption, queue and message. The file holds JSON Lines, gzip or not. "
        "Exit status 0: all match."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the arguments."""
        parser.add_argument("file", type=Path, metavar="FILE", help="the file with the scenarios")
        parser.add_argument("--family", default="", help="replay only scenarios of this family")
        parser.add_argument("--jobs", type=int, default=1, help="number of processes; 1 by default")
        parser.add_argument(
            "--first-difference", action="store_true", help="stop at the first difference"
        )

    def handle(
        self,
        *args: object,
        file: Path,
        family: str,
        jobs: int,
        first_difference: bool,
        **options: object,
    ) -> None:
        """Replay, print differences, and end with the number of matches."""
        try:
            lines = list(_lines(file, family=family))
        except (OSError, EOFError, ValueError) as error:
            raise CommandError(f"{file} cannot be read: {error}") from error
        if not lines:
            of_family = f" of family {family!r}" if family else ""
            raise CommandError(f"{file} holds no scenario{of_family}.")
        total = matches = 0
        for result in _results(lines, jobs=max(1, jobs)):
            total += 1
            matches += result.is_match
            if not result.is_match:
                self._show(result)
                if first_difference:
                    break
        self.stdout.write(f"{matches} of {total} scenarios match")
        if matches != len(lines):
            raise SystemExit(1)

    def _show(self, result: ScenarioResult) -> None:
        self.stdout.write(f"{result.name} ({result.family})")
        for difference in result.differences:
            self.stdout.write(f"  {_place(difference)}: {difference.what}")
            self.stdout.write(f"    wanted  {_text(difference.wanted)}")
            self.stdout.write(f"    got     {_text(difference.got)}")


def _lines(path: Path, *, family: str) -> Iterator[str]:
    with path.open("rb") as probe:
        is_gzip = probe.read(2) == b"\x1f\x8b"
    with (
        gzip.open(path, "rt", encoding="utf-8")
        if is_gzip
        else path.open(encoding="utf-8") as stream
    ):
        for number, line in enumerate(stream, 1):
            if not line.strip():
                continue
            record = json.loads(line)
            if not isinstance(record, dict) or not {"name", "family"} <= record.keys():
                raise ValueError(f"line {number} is not a scenario")
            if not family or record["family"] == family:
                yield line


def _results(lines: list[str], *, jobs: int) -> Iterable[ScenarioResult]:
    if jobs == 1:
        yield from map(replay_line, lines)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(replay_line, lines, chunksize=_CHUNK)


def _place(difference: ReplayDifference) -> str:
    if difference.cycle is None:
        return f"step {difference.step}, after its last cycle"
    return f"step {difference.step}, cycle {difference.cycle}"


def _text(value: object) -> str:
    return json.dumps(value, sort_keys=True, default=str)
