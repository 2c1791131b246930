"""The command line of the portal: what a person reads when something is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize("command", [("worker_rbac",), ("why", "a/b"), ("verify_ledger",)])
def test_a_database_without_tables_is_no_traceback(tmp_path: Path, command: tuple[str, ...]):
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.settings",
        "DATABASE_URL": f"sqlite:///{tmp_path}/empty.sqlite3",
    }
    done = subprocess.run(
        [sys.executable, "manage.py", *command],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "manage.py migrate" in done.stderr
