"""``python -m tests.image``: build the image without a daemon, run it, and say what is in it.

The steps are those of the Dockerfile, read from it. The root that it begins with is made of
Debian's packages in place of python:3.12-slim-bookworm, so the interpreter is Debian's Python. Then
the portal is migrated, checked and started in it: read-only, as the image's own user, without a
capability, against a real PostgreSQL. What was done is in ``artifacts/image/report.json``, the bill
of materials in ``artifacts/image/sbom.cdx.json``; exit status 1 when anything did not hold.

Nothing is downloaded but packages of Debian and of Python.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import time
import tomllib
import urllib.error
import urllib.request
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import Any

from tests.controlplane.processes import free_port
from tests.image import TREE, dockerfile, sbom
from tests.image.roots import Container, Root, end, make_base, require_machine
from tests.servers import Missing, postgres_server
from tests.waiting import eventually

SPOOL = "/var/spool/portal"
# How a process of the image sees itself.
SEES = """
import json, os, pathlib
status = dict(line.split(":", 1) for line in open("/proc/self/status") if ":" in line)
def refused(path):
    try:
        pathlib.Path(path, "tried").write_text("x")
    except OSError as error:
        return error.strerror
    return ""
print(json.dumps({
    "uid": os.getuid(),
    "capabilities": int(status["CapEff"], 16) | int(status["CapBnd"], 16),
    "root": [refused(path) for path in ("/", "/etc", "/opt/portal", "/srv/portal", "/srv/static")],
    "may_write": [refused(path) for path in ("/tmp", "/dev/shm", "/var/spool/portal")],
}))
"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.image", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave the roots in artifacts/image")
    given = parser.parse_args()
    try:
        require_machine()
    except Missing as missing:
        print(f"The image is NOT built: {missing}")
        return int(os.environ.get("CI", "").lower() == "true")
    folder = TREE / "artifacts" / "image"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        report = built_and_run(folder)
    finally:
        if not given.keep:
            for root in folder.glob("root-*"):
                shutil.rmtree(root)
    (folder / "report.json").write_text(json.dumps(report, indent=2) + "\n")
    print(json.dumps(report, indent=2))
    for fault in report["faults"]:
        print(f"FAULT: {fault}")
    return int(bool(report["faults"]))


def built_and_run(folder: Path) -> dict[str, Any]:
    """What was built, how long it took, and what did not hold."""
    report: dict[str, Any] = {"faults": [], "seconds": {}}
    begun = time.monotonic()

    def note(what: str) -> None:
        nonlocal begun
        report["seconds"][what] = round(time.monotonic() - begun, 1)
        begun = time.monotonic()

    image, stage = build(folder, note)
    packages = sbom.packages_of(image.place)
    version = tomllib.loads((TREE / "pyproject.toml").read_text())["project"]["version"]
    text = sbom.bill(packages, product="gpu-budget-portal", version=version)
    (folder / "sbom.cdx.json").write_text(text)
    python = sbom.python_of(image.place / sbom.VENV)
    wanted = sbom.required((TREE / "requirements.txt").read_text(), python=python)
    lacking = sbom.missing(wanted, packages)
    report["python"] = python
    report["faults"] += [f"the bill of materials lacks {each}" for each in lacking]
    kinds = [package.kind for package in packages]
    report["packages"] = {kind: kinds.count(kind) for kind in ("pypi", "deb")}
    report["megabytes"] = {
        name: round(size_of(image.inside(path)) / 1e6, 1)
        for name, path in (("whole", "/"), ("packages", "/opt/portal"), ("product", "/srv"))
    }
    note("bill of materials")
    report["faults"] += journey(folder, image, stage)
    note("journey")
    return report


def build(folder: Path, note: Any) -> tuple[Root, dockerfile.Stage]:
    """Carry out every stage; the root of the last one, and how it is started."""
    base = folder / "root-base"
    make_base(base, folder / "base.log")
    note("base of Debian's packages")
    stages = dockerfile.read((TREE / "Dockerfile").read_text())
    roots: dict[str, Root] = {}
    for number, stage in enumerate(stages):
        root = Root(folder / f"root-{stage.name or number}")
        subprocess.run(["cp", "-a", str(base), str(root.place)], check=True)
        root.carry_out(stage, context=TREE, others=roots, log=folder / "build.log")
        roots[stage.name or str(number)] = root
        note(f"stage {stage.name or 'of the image'}")
    return root, stages[-1]


def size_of(path: Path) -> int:
    """Bytes of the files below a folder, each once however many names it has."""
    seen: dict[tuple[int, int], int] = {}
    for place, _, names in os.walk(path):
        for name in names:
            found = os.lstat(os.path.join(place, name))
            seen[found.st_dev, found.st_ino] = found.st_size
    return sum(seen.values())


def journey(folder: Path, image: Root, stage: dockerfile.Stage) -> list[str]:
    """What did not hold when the portal ran in the image, in words."""
    spool = folder / "spool"
    spool.mkdir(mode=0o700)
    container = Container(image, stage.user, (spool, SPOOL))
    faults = sight(folder, container)
    with postgres_server() as url:
        port = free_port()
        environment = {
            "DATABASE_URL": url,
            "PORTAL_SECRET_KEY": secrets.token_hex(32),
            "PORTAL_CREDENTIAL_KEYS": urlsafe_b64encode(secrets.token_bytes(32)).decode(),
            "PORTAL_HTTPS": "false",
            "CELERY_BROKER_URL": "memory://",
        }
        for command in ("check_settings", "migrate --no-input"):
            status = container.run(
                ("python", "manage.py", *command.split()), environment, log=folder / "run.log"
            )
            if status:
                faults.append(f"manage.py {command} ended with {status}: see run.log")
        bound = (f"0.0.0.0:{stage.port}", f"127.0.0.1:{port}")
        started = [part.replace(*bound) for part in stage.command]
        web = container.start(started, environment, log=folder / "web.log")
        try:
            faults += asked(f"http://127.0.0.1:{port}", web)
        finally:
            end(web)
    return faults


def sight(folder: Path, container: Container) -> list[str]:
    """How a process sees itself: nobody, without rights, in a root that it cannot change."""
    log = folder / "sight.log"
    if container.run(("python", "-c", SEES), {}, log=log):
        return ["a process does not start: see sight.log"]
    found = json.loads(log.read_text().splitlines()[-1])
    faults = []
    if found["uid"] != int(container.user):
        faults.append(f"it runs as {found['uid']}, not as {container.user}")
    if found["capabilities"]:
        faults.append(f"it has capabilities: {found['capabilities']:x}")
    if not all(found["root"]):
        faults.append(f"it can write to its root: {found['root']}")
    if any(found["may_write"]):
        faults.append(f"it cannot write where it has to: {found['may_write']}")
    return faults


def asked(address: str, web: subprocess.Popen[bytes]) -> list[str]:
    """What the web of the image answers wrongly."""

    def is_up() -> bool:
        assert web.poll() is None, "the web ended: see web.log"
        return answer(f"{address}/healthz")[0] == 200

    eventually(is_up, seconds=120, why="the web does not answer: see web.log")
    faults = []
    for path in ("/healthz", "/readyz", "/login/"):
        status, body = answer(f"{address}{path}")
        if status != 200:
            faults.append(f"{path} is answered with {status}")
    assets = sorted(set(re.findall(r'(?:href|src)="(/static/[^"]+)"', body)))
    if not assets:
        faults.append("the page of the sign-in names no asset")
    for path in assets:
        status, content = answer(f"{address}{path}")
        if status != 200 or not content:
            faults.append(f"{path} is answered with {status} and {len(content)} characters")
    if answer(f"{address}/static/of-nobody.css")[0] != 404:
        faults.append("an asset that is not there is not answered with 404")
    return faults


def answer(address: str) -> tuple[int, str]:
    """Status and text; 0 where there is no answer."""
    try:
        with urllib.request.urlopen(address, timeout=10) as found:
            return found.status, found.read().decode(errors="replace")
    except urllib.error.HTTPError as error:
        return error.code, ""
    except OSError:
        return 0, ""


if __name__ == "__main__":
    sys.exit(main())
