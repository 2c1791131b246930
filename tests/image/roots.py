"""Roots: one made of Debian's packages, changed as a Dockerfile says, and run as a container is.

Everything that is mounted is mounted in a namespace of its own, which ends with its last process.
What runs in a finished root cannot write to it, is not root, and has no capability.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.image.dockerfile import Copy, Env, Run, Stage, Workdir
from tests.servers import Missing

SUITE = "bookworm"
# What python:3.12-slim-bookworm has: Debian's slim image, certificates, time zones and Python. The
# interpreter is Debian's own, since the other one is in no package of it.
PACKAGES = ("python3", "python3-venv", "ca-certificates", "netbase", "tzdata")
SLIM = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Where packages come from is a matter of the machine that builds.
HANDED_ON = ("PIP_CERT", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "HTTPS_PROXY", "https_proxy")
BUILD_S = 1800


def require_machine() -> None:
    """See that this machine can do it.

    Raises:
        Missing: a program or a right is missing; with how to get it.
    """
    for program, package in (
        ("mmdebstrap", "mmdebstrap"),
        ("unshare", "util-linux"),
        ("setpriv", "util-linux"),
    ):
        if shutil.which(program) is None:
            raise Missing(f"no {program}: install Debian's {package}")
    if os.geteuid() != 0:
        raise Missing("a root of another system needs root: run it as root, or in a container")
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", "mount -t tmpfs none /mnt"], capture_output=True, check=False
    )
    if done.returncode:
        raise Missing("no right to mount: the image cannot be made read-only here")


def make_base(place: Path, log: Path) -> None:
    """Debian with a Python, which a Dockerfile of ``python:3.12-slim-bookworm`` begins with."""
    slim = [f"--dpkgopt=path-exclude={pattern}" for pattern in SLIM]
    command = ["mmdebstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", *slim]
    with log.open("wb") as file:
        subprocess.run(
            [*command, SUITE, str(place)], check=True, stdout=file, stderr=file, timeout=BUILD_S
        )
    (place / "usr/local/bin/python").symlink_to("/usr/bin/python3")


@dataclass(slots=True)
class Root:
    """A root that is built: where it is, and what its environment has come to."""

    place: Path
    environment: dict[str, str] = field(default_factory=lambda: {"PATH": PATH})
    workdir: str = "/"

    def carry_out(
        self, stage: Stage, *, context: Path, others: Mapping[str, Root], log: Path
    ) -> None:
        """Every step of a stage, in order.

        Raises:
            subprocess.CalledProcessError: a step failed; the log has what it printed.
        """
        for step in stage.steps:
            match step:
                case Run(command):
                    self._run(command, log)
                case Copy(sources, target, source_stage):
                    origin = others[source_stage].place if source_stage else context
                    self._copy(origin, sources, target, is_context=not source_stage)
                case Env(values):
                    for name, value in values.items():
                        self.environment[name] = self._expanded(value)
                case Workdir(path):
                    self.workdir = path
                    self.inside(path).mkdir(parents=True, exist_ok=True)

    def inside(self, path: str) -> Path:
        """A path of the root, as it is seen from outside."""
        return self.place / path.lstrip("/")

    def user_of(self, uid: str) -> tuple[int, int]:
        """User and group that a container of USER runs as."""
        for row in self.inside("/etc/passwd").read_text().splitlines():
            fields = row.split(":")
            if uid in (fields[0], fields[2]):
                return int(fields[2]), int(fields[3])
        return int(uid), 0

    def _expanded(self, value: str) -> str:
        for name, known in self.environment.items():
            value = value.replace(f"${name}", known)
        return value

    def _run(self, command: str, log: Path) -> None:
        handed = {name: os.environ[name] for name in HANDED_ON if name in os.environ}
        inside = [
            "chroot",
            str(self.place),
            "sh",
            "-c",
            f"cd {shlex.quote(self.workdir)} && {command}",
        ]
        script = "\n".join([*_mounted_for_building(self.place, handed), shlex.join(inside)])
        with log.open("ab") as file:
            subprocess.run(
                ["unshare", "-m", "-p", "-f", "--kill-child", "sh", "-e", "-c", script],
                env={**self.environment, **handed, "HOME": "/root"},
                check=True,
                stdout=file,
                stderr=file,
                timeout=BUILD_S,
            )

    def _copy(self, origin: Path, sources: Sequence[str], target: str, *, is_context: bool) -> None:
        """As COPY does: of a folder what is in it; of the context nothing that was compiled."""
        place = self.inside(os.path.normpath(os.path.join(self.workdir, target)))
        is_folder = target.endswith("/") or target in (".", "./") or len(sources) > 1
        ignored = shutil.ignore_patterns("__pycache__") if is_context else None
        for source in sources:
            found = origin / source.lstrip("/")
            if found.is_dir():
                shutil.copytree(found, place, symlinks=True, ignore=ignored, dirs_exist_ok=True)
            else:
                into = place / found.name if is_folder else place
                into.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(found, into)


def _mounted_for_building(place: Path, handed: Mapping[str, str]) -> list[str]:
    """What a step needs of the machine: devices, names of hosts, and its authorities for pip."""
    lines = ["mount --make-rprivate /", f"mount -t proc proc {_quoted(place / 'proc')}"]
    lines += _devices(place)
    files = [Path("/etc/resolv.conf"), Path("/etc/hosts")]
    files += [Path(handed[name]) for name in ("PIP_CERT",) if name in handed]
    for file in files:
        if file.exists():
            there = place / str(file).lstrip("/")
            there.parent.mkdir(parents=True, exist_ok=True)
            there.touch()
            lines.append(f"mount --bind {_quoted(file)} {_quoted(there)}")
    return lines


def _devices(place: Path) -> list[str]:
    dev = place / "dev"
    lines = [f"mount -t tmpfs -o mode=755 tmpfs {_quoted(dev)}"]
    for name, numbers in (("null", "1 3"), ("zero", "1 5"), ("random", "1 8"), ("urandom", "1 9")):
        lines.append(f"mknod -m 666 {_quoted(dev / name)} c {numbers}")
    shm = _quoted(dev / "shm")
    return [*lines, f"mkdir {shm}", f"mount -t tmpfs -o mode=1777 tmpfs {shm}"]


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))


def end(process: subprocess.Popen[bytes]) -> None:
    """End what `Container.start` gave, and all that it started; it takes no other signal."""
    process.kill()
    process.wait()


@dataclass(frozen=True, slots=True)
class Container:
    """How a finished root is run: read-only, as its own user, with what compose.yaml gives it.

    Attributes:
        volume: A folder of the machine in place of one of the root, which the user may write to.
    """

    root: Root
    user: str
    volume: tuple[Path, str]

    def start(
        self, command: Sequence[str], environment: Mapping[str, str], *, log: Path
    ) -> subprocess.Popen[bytes]:
        """Start a command; its end is the end of all that it started."""
        place, (folder, at) = self.root.place, self.volume
        uid, gid = self.root.user_of(self.user)
        os.chown(folder, uid, gid)
        rights = (f"--reuid={uid}", f"--regid={gid}", "--clear-groups", "--no-new-privs")
        none = ("--bounding-set=-all", "--inh-caps=-all")
        go = f"cd {shlex.quote(self.root.workdir)} && exec {shlex.join(command)}"
        inside = ["chroot", str(place), "/usr/bin/setpriv", *rights, *none, "sh", "-c", go]
        quoted = _quoted(place)
        lines = [
            "mount --make-rprivate /",
            f"mount --bind {quoted} {quoted}",
            f"mount --bind {_quoted(folder)} {_quoted(place / at.lstrip('/'))}",
            f"mount -t proc -o ro proc {_quoted(place / 'proc')}",
            f"mount -t tmpfs -o mode=1777 tmpfs {_quoted(place / 'tmp')}",
            *_devices(place),
            f"mount -o remount,bind,ro {quoted}",
            # The shell stays: who changes its user loses the signal of the end of its parent, and
            # with the shell, the first process here, all others end.
            f"{shlex.join(inside)} || exit $?",
            "exit 0",
        ]
        with log.open("ab") as file:
            return subprocess.Popen(
                ["unshare", "-m", "-p", "-f", "--kill-child", "sh", "-e", "-c", "\n".join(lines)],
                env={**self.root.environment, **environment},
                stdout=file,
                stderr=file,
                stdin=subprocess.DEVNULL,
            )

    def run(self, command: Sequence[str], environment: Mapping[str, str], *, log: Path) -> int:
        """The exit status of a command that ends by itself."""
        process = self.start(command, environment, log=log)
        try:
            return process.wait(timeout=BUILD_S)
        finally:
            end(process)
