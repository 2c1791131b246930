"""Node.js and the packages of the provider; nothing of the portal is imported for it.

Packages come from the committed lockfile into a cache folder, once; ``node_modules`` is never
committed. Environment: ``SIGNIN_CACHE`` names the folder (default
``~/.cache/gpu-budget-portal/signin``).
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.servers import Missing

HERE = Path(__file__).resolve().parent
PINS = ("package.json", "package-lock.json")
OLDEST_NODE = 20
HINT = f"install Node.js {OLDEST_NODE} or later with npm (Debian 13's nodejs and npm)"


def node() -> str:
    """Path of node.

    Raises:
        Missing: There is none, or one that is too old for the provider.
    """
    found = shutil.which("node")
    if found is None or shutil.which("npm") is None:
        raise Missing(f"no Node.js: {HINT}")
    told = subprocess.run([found, "--version"], capture_output=True, text=True, check=True).stdout
    if int(re.findall(r"\d+", told)[0]) < OLDEST_NODE:
        raise Missing(f"Node.js {told.strip()} is too old: {HINT}")
    return found


def packages() -> Path:
    """The folder with the provider's packages; installed the first time, by one process alone."""
    node()
    default = Path.home() / ".cache" / "gpu-budget-portal" / "signin"
    root = Path(os.environ.get("SIGNIN_CACHE") or default)
    root.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256(b"".join((HERE / name).read_bytes() for name in PINS)).hexdigest()
    folder = root / digest[:16]
    with open(root / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            made = Path(tempfile.mkdtemp(dir=root))
            for name in PINS:
                shutil.copy(HERE / name, made)
            command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
            done = subprocess.run(command, cwd=made, capture_output=True, text=True)
            if done.returncode:
                shutil.rmtree(made)
                raise Missing(f"the provider's packages: npm ci failed: {done.stderr[-500:]}")
            made.rename(folder)
    return folder
