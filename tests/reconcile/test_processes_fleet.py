"""Five clusters, one of which means harm: its process dies of memory, and the others never notice.

A small run of ``tests/perf/bench_processes.py``, which measures the same with twenty.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.fernet import Fernet

from tests.lanes import ROOT

SMALL = "import django; django.setup(); from tests.perf import bench_processes as b; b.main()"


@pytest.mark.embedded
def test_the_others_go_on_in_the_processes_that_they_had(tmp_path: Path):
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.settings",
        "DATABASE_URL": f"sqlite:///{tmp_path}/portal.sqlite3",
        "PORTAL_CREDENTIAL_KEYS": Fernet.generate_key().decode(),
        "PORTAL_LOG_LEVEL": "WARNING",
        "SHIFT_MEMORY_MB": "400",
    }
    migrate = [sys.executable, "manage.py", "migrate", "-v0"]
    subprocess.run(migrate, cwd=ROOT, env=environment, check=True)
    done = subprocess.run(
        [sys.executable, "-c", SMALL],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert any("needed more memory than SHIFT_MEMORY_MB" in why for why in told["died"])
    assert told["same_processes"]
    assert told["n"] == {"admission": 8, "sync": 8}  # none of them took two minutes
