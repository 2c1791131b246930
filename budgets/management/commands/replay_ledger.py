"""Work ledgers out again, without the database, and say where they come to something else."""

from __future__ import annotations

import gzip
import json
import zlib
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from django.core.management.base import BaseCommand, CommandError

from budgets.charging import (
    LedgerDifference,
    LedgerFaults,
    differences,
    read_ledger,
    work_out,
)
from budgets.errors import Fault

SHOWN = 10
SEEN_OTHER, BAD_INPUT = 1, 2
GZIP_MAGIC = b"\x1f\x8b"


class Command(BaseCommand):
    """``manage.py replay_ledger FILE``."""

    help = (
        "Compute ledgers with the functions that the portal bills with, and compare the results "
        "with those that the ledgers expect. The file holds one JSON object or JSON Lines, gzip "
        "or not (docs/ledger-format.md). Exit status 0: all match; 1: one differs; 2: one cannot "
        "be read."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the arguments."""
        parser.add_argument("file", type=Path, metavar="FILE", help="the file with the ledgers")
        parser.add_argument(
            "--json",
            action="store_true",
            dest="as_json",
            help="print each result as one line of JSON; everything else goes to stderr",
        )
        parser.add_argument(
            "--first-difference",
            action="store_true",
            help="stop at the first ledger that differs, and show its first difference",
        )

    def handle(
        self, *args: object, file: Path, as_json: bool, first_difference: bool, **options: object
    ) -> None:
        """Replay every record, print differences, and end with the number of matches."""
        told = self.stderr if as_json else self.stdout
        compared = matches = read = 0
        refused: list[str] = []
        for line, text in _texts(file):
            read += 1
            try:
                record = _parsed(text)
                ledger = read_ledger(record)
            except LedgerFaults as faults:
                refused += [
                    f"line {line}: {fault.field or 'record'}: {fault.message}"
                    for fault in faults.faults
                ]
                continue
            result = work_out(ledger)
            if as_json:
                self.stdout.write(json.dumps({"name": ledger.name, **result}))
            if not isinstance(record, dict) or record.get("expect") is None:
                continue
            compared += 1
            found = differences(result, record["expect"])
            matches += not found
            if found:
                self._show(told, ledger.name, found[:1] if first_difference else found)
                if first_difference:
                    break
        self._end(told, file, refused, (matches, compared, read))

    def _show(self, told: Any, name: str, found: list[LedgerDifference]) -> None:
        told.write(f"{name} differs")
        for difference in found[:SHOWN]:
            told.write(f"  {difference.place}")
            told.write(f"    wanted  {json.dumps(difference.wanted)}")
            told.write(f"    got     {json.dumps(difference.got)}")
        if len(found) > SHOWN:
            told.write(f"  and {len(found) - SHOWN} more")

    def _end(self, told: Any, file: Path, refused: list[str], counts: tuple[int, int, int]) -> None:
        matches, compared, read = counts
        if not read:
            raise CommandError(f"{file} holds no ledger.", returncode=BAD_INPUT)
        for text in refused:
            self.stderr.write(text)
        told.write(f"{matches} of {compared} ledgers match")
        if refused:
            raise SystemExit(BAD_INPUT)
        if matches != compared:
            raise SystemExit(SEEN_OTHER)


def _texts(file: Path) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of each record: JSON Lines, or one JSON object over many lines."""
    try:
        raw = file.read_bytes()
        text = (gzip.decompress(raw) if raw[:2] == GZIP_MAGIC else raw).decode("utf-8-sig")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise CommandError(f"{file} cannot be read: {error}", returncode=BAD_INPUT) from error
    lines = [(at, line) for at, line in enumerate(text.split("\n"), 1) if line.strip()]
    if len(lines) > 1 and (_is_object(text) or not any(_is_object(line) for _, line in lines)):
        # One object over many lines, or an attempt at it: one record, and one error.
        lines = [(1, text)]
    yield from lines


def _is_object(text: str) -> bool:
    """Whether a text is a record of its own, and not a line out of one."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and "period" in value


def _parsed(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise LedgerFaults([Fault("", "no_json", f"this is not JSON: {error}")]) from error


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")
