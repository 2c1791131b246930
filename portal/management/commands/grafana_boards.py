"""``manage.py grafana_boards FOLDER``: boards for Grafana, one file for each reader."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from portal.boards import BOARDS, board_of


class Command(BaseCommand):
    help = "Write dashboards for Grafana: one for admins, one for owners, one for finance."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "folder", type=Path, help="folder for the JSON files; created if it is missing"
        )

    def handle(self, *args: Any, folder: Path, **options: Any) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for name, board in BOARDS.items():
                path = folder / f"gpu-budget-portal-{name}.json"
                path.write_text(json.dumps(board_of(name, board), indent=2) + "\n")
                self.stdout.write(str(path))
        except OSError as error:
            raise CommandError(
                f"{folder} cannot be written: {error.strerror}. Name a folder you may write to."
            ) from None
