"""The real Helm, with its own folders, and what it says when it refuses."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.controlplane import build

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "chart"
VALUES = Path(__file__).parent / "values"
RELEASE, NAMESPACE = "portal", "gpu-portal"
_AS_OF = ("--kube-version", build.KUBERNETES_VERSION)


class HelmError(RuntimeError):
    """Helm ended with a fault; the message is what it printed."""


@dataclass(frozen=True, slots=True)
class Helm:
    """Helm's program with a home of its own and, where it is to reach a cluster, a kubeconfig."""

    home: Path
    kubeconfig: Path | None = None

    def run(self, *arguments: str | Path) -> str:
        """What it prints.

        Raises:
            HelmError: it failed.
        """
        environment = {"PATH": os.environ.get("PATH", ""), "HOME": str(self.home)}
        if self.kubeconfig is not None:
            environment["KUBECONFIG"] = str(self.kubeconfig)
        command = [build.binary("helm"), *arguments]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        if done.returncode:
            raise HelmError(done.stdout + done.stderr)
        return done.stdout

    def lint(self, values: Path) -> str:
        return self.run("lint", "--strict", CHART, "-f", values, *_AS_OF)

    def template(self, values: Path, *more: str) -> str:
        return self.run("template", RELEASE, CHART, "-n", NAMESPACE, "-f", values, *_AS_OF, *more)

    def documents(self, values: Path, *more: str) -> list[dict[str, Any]]:
        """The objects that it would make."""
        found = yaml.load_all(self.template(values, *more), Loader=yaml.CSafeLoader)
        return [document for document in found if document]

    def change(self, verb: str, namespace: str, *more: str) -> dict[str, Any]:
        """Install or upgrade, and wait until all is ready; the release as it is then."""
        waiting: Sequence[str] = ("--wait", "--timeout", "4m", "-o", "json")
        told = self.run(verb, RELEASE, str(CHART), "-n", namespace, *more, *waiting)
        found: dict[str, Any] = json.loads(told)
        return found
