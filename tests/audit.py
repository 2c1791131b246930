"""Known vulnerabilities of what requirements.txt names, asked with pip-audit where there is one.

``python -m tests.audit``; a part of the static lane. Databases of vulnerabilities are services on
the network, and none ships as a package that is kept up to date. So where pip-audit is missing or
reaches no service, that is said in one line and nothing is promised: exit status 0. A package that
pip-audit leaves out (a mirror without advisories answers so) counts as not asked. What is found
fails.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SERVICES = ("pypi", "osv")
PATIENCE_S = 60


def ask(program: str, service: str) -> list[dict[str, Any]] | None:
    """Packages with what is known of them; None when the service could not be asked of each."""
    options = ["--disable-pip", "--require-hashes", "-f", "json", "--timeout", "5"]
    command = [program, "-s", service, "-r", str(ROOT / "requirements.txt"), *options]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
        found = json.loads(done.stdout)["dependencies"]
    except (subprocess.TimeoutExpired, ValueError, KeyError):
        return None
    return None if not found or any("skip_reason" in row for row in found) else found


def main() -> int:
    program = shutil.which("pip-audit")
    if program is None:
        print(
            "known vulnerabilities: NOT asked: pip-audit is not installed (pip install pip-audit)"
        )
        return 0
    for service in SERVICES:
        found = ask(program, service)
        if found is not None:
            break
    else:
        print(f"known vulnerabilities: NOT asked: none of {', '.join(SERVICES)} answers here")
        return 0
    told = [
        f"{row['name']} {row['version']}: {vuln['id']}" for row in found for vuln in row["vulns"]
    ]
    print(
        f"known vulnerabilities of {len(found)} packages by {service}: {len(told)}", *told, sep="\n"
    )
    return 1 if told else 0


if __name__ == "__main__":
    sys.exit(main())
