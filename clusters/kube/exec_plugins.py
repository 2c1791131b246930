"""Programs that fetch a credential for a cluster, as an admin of this server names them.

They come from a file on the server and from nowhere else: a kubeconfig that names a program stays
refused. A program is started without a shell, with the few variables that are given, nothing to
read and a limit of time; what it says is an ExecCredential.

Source: Kubernetes client-go credential plugins, client.authentication.k8s.io/v1; Kueue
``multiKueue.clusterProfile.accessProviders``, v0.19.2; spec dispatch 1.7.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any, Final
from urllib.parse import urlsplit

from budgets.texts import read_json
from clusters.errors import Refusal, Retryable, Terminal

VERSIONS: Final = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
CLUSTER_EXTENSION: Final = "client.authentication.k8s.io/exec"
MODES: Final = ("Never", "IfAvailable", "Always")
TIMEOUT_S: Final = 20.0
_HTTPS: Final = 443
_OUTPUT_LIMIT: Final = 1 << 20
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLAIN: Final = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}


@dataclass(frozen=True, slots=True)
class ExecPlugin:
    """One access provider.

    Attributes:
        name: As ClusterProfiles call it.
        api_version: Of the ExecCredentials that it reads and writes.
        command: Absolute path.
        args: Its arguments.
        env: Its variables.
        servers: Where its credentials may go: hosts of API servers, with a port unless it is 443;
            ``*.example.com`` for all below a domain.
    """

    name: str
    api_version: str
    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    servers: tuple[str, ...] = ()

    def may_go_to(self, server: str) -> bool:
        """Whether a credential of it may go to ``https://HOST:PORT``."""
        host, port = _place(server)
        for listed in self.servers:
            allowed, at = _place(f"https://{listed}")
            is_below = allowed.startswith("*.") and host.endswith(allowed[1:])
            if port == at and host and (host == allowed or is_below):
                return True
        return False


@dataclass(frozen=True, slots=True)
class Credential:
    """What a plugin gave; ``expires_at`` None for one that does not say."""

    token: str = field(default="", repr=False)
    certificate_pem: str = field(default="", repr=False)
    key_pem: str = field(default="", repr=False)
    expires_at: datetime | None = None


def parse_providers(document: Mapping[str, Any]) -> tuple[ExecPlugin, ...]:
    """The access providers of a document, in its order.

    Args:
        document: ``accessProviders``: a list of ``name``, ``servers`` and ``execConfig`` with
            ``apiVersion``, ``command``, ``interactiveMode`` and, as wanted, ``args`` and ``env``.

    Raises:
        ValueError: everything that is not usable, in one message.
    """
    listed = document.get("accessProviders") if isinstance(document, Mapping) else None
    if not isinstance(listed, list):
        raise ValueError("accessProviders: a list of access providers is missing")
    problems = [problem for index, item in enumerate(listed) for problem in _problems(index, item)]
    names = [item.get("name") for item in listed if isinstance(item, Mapping)]
    for name in sorted({str(name) for name in names if name and names.count(name) > 1}):
        problems.append(f"accessProviders: {name!r} is named twice")
    if problems:
        raise ValueError("; ".join(problems))
    return tuple(
        ExecPlugin(
            name=item["name"],
            api_version=item["execConfig"]["apiVersion"],
            command=item["execConfig"]["command"],
            args=tuple(item["execConfig"].get("args") or ()),
            env={pair["name"]: pair["value"] for pair in item["execConfig"].get("env") or ()},
            servers=tuple(item["servers"]),
        )
        for item in listed
    )


def run_plugin(
    plugin: ExecPlugin, cluster: Mapping[str, Any], *, timeout_s: float = TIMEOUT_S
) -> Credential:
    """Run a plugin for a cluster and read its answer.

    Args:
        plugin: Named by an admin.
        cluster: ``server`` and ``certificate-authority-data``, and ``config``: what the cluster's
            profile wants the plugin to know.
        timeout_s: Seconds after which it is killed.

    Raises:
        Retryable: it did not end in time, or with a failure.
        Terminal: it cannot be started, or its answer is not a credential.
    """
    wish = {
        "apiVersion": plugin.api_version,
        "kind": "ExecCredential",
        "spec": {"cluster": dict(cluster), "interactive": False},
    }
    env = {**_PLAIN, **plugin.env, "KUBERNETES_EXEC_INFO": json.dumps(wish)}
    try:
        done = subprocess.run(
            [plugin.command, *plugin.args],
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s,
            check=False,
            cwd="/",
        )
    except subprocess.TimeoutExpired:
        text = f"access provider {plugin.name}: no answer within {timeout_s:g} s"
        raise Retryable(Refusal(text, "PluginTimeout")) from None
    except OSError as error:
        text = f"access provider {plugin.name}: {plugin.command} cannot be started: "
        raise Terminal(Refusal(text + (error.strerror or "error"), "PluginMissing")) from error
    if done.returncode:
        # What it printed may hold secrets; who needs it runs the plugin by hand.
        text = f"access provider {plugin.name}: ended with exit code {done.returncode}"
        raise Retryable(Refusal(text, "PluginFailed"))
    return _credential(plugin, done.stdout)


def _credential(plugin: ExecPlugin, output: bytes) -> Credential:
    def unusable(why: str) -> Terminal:
        return Terminal(Refusal(f"access provider {plugin.name}: {why}", "BadCredential"))

    if len(output) > _OUTPUT_LIMIT:
        raise unusable("its answer is longer than 1 MiB")
    try:
        found = read_json(output)
    except ValueError:
        raise unusable("its answer is not JSON") from None
    is_right = isinstance(found, dict) and found.get("kind") == "ExecCredential"
    if not is_right or found.get("apiVersion") != plugin.api_version:
        raise unusable(f"its answer is not an ExecCredential of {plugin.api_version}")
    status = found.get("status") or {}
    token = str(status.get("token") or "")
    certificate = str(status.get("clientCertificateData") or "")
    key = str(status.get("clientKeyData") or "")
    if bool(certificate) != bool(key):
        raise unusable("a client certificate and its key go together")
    if not token and not certificate:
        raise unusable("its answer has neither a token nor a client certificate")
    return Credential(token, certificate, key, _time(status.get("expirationTimestamp"), unusable))


def _time(text: Any, unusable: Any) -> datetime | None:
    if not text:
        return None
    try:
        found = datetime.fromisoformat(str(text))
    except ValueError:
        raise unusable(f"expirationTimestamp {text!r} is not a time") from None
    if found.tzinfo is None:
        raise unusable(f"expirationTimestamp {text!r} has no time zone")
    return found


def _place(server: str) -> tuple[str, int]:
    """Host and port of an address; an empty host where it is none."""
    try:
        parts = urlsplit(server)
        return (parts.hostname or "").rstrip("."), parts.port or _HTTPS
    except ValueError:
        return "", _HTTPS


def _is_place(listed: Any) -> bool:
    """Whether it is ``HOST`` or ``HOST:PORT``, a whole domain below another at the most."""
    if not isinstance(listed, str) or set(listed) & set("/@?# "):
        return False
    host = _place(f"https://{listed}")[0].removeprefix("*.")
    return bool(host) and "*" not in host


def _problems(index: int, item: Any) -> Iterator[str]:
    place = f"accessProviders[{index}]"
    if not isinstance(item, Mapping):
        yield f"{place}: is not a map"
        return
    if not item.get("name") or not isinstance(item.get("name"), str):
        yield f"{place}.name: is missing"
    servers = item.get("servers")
    if not servers or not isinstance(servers, list | tuple) or not all(map(_is_place, servers)):
        yield (
            f"{place}.servers: name the API servers that its credentials may go to, as"
            " gpu.example.com, 10.0.0.7:6443 or *.example.com"
        )
    config = item.get("execConfig")
    if not isinstance(config, Mapping):
        yield f"{place}.execConfig: is missing"
        return
    command = config.get("command")
    if not isinstance(command, str) or not PurePosixPath(command).is_absolute():
        yield f"{place}.execConfig.command: {command!r} is not an absolute path"
    if config.get("apiVersion") not in VERSIONS:
        yield f"{place}.execConfig.apiVersion: write {' or '.join(VERSIONS)}"
    if config.get("interactiveMode") not in MODES:
        yield f"{place}.execConfig.interactiveMode: write one of {', '.join(MODES)}"
    args, pairs = config.get("args") or (), config.get("env") or ()
    if not isinstance(args, list | tuple) or not all(isinstance(each, str) for each in args):
        yield f"{place}.execConfig.args: a list of texts is needed"
    is_listed = isinstance(pairs, list | tuple)
    for pair in pairs if is_listed else ():
        is_pair = isinstance(pair, Mapping) and isinstance(pair.get("value"), str)
        if not is_pair or not _VARIABLE.fullmatch(str(pair.get("name", ""))):
            yield f"{place}.execConfig.env: {pair!r} is not a name and a value"
    if not is_listed:
        yield f"{place}.execConfig.env: a list of names and values is needed"
