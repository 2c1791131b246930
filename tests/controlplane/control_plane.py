"""One real Kubernetes control plane on loopback, with a real Kueue where a test wants one.

    with ControlPlane("manager", folder) as cluster:
        cluster.rest.create("/api/v1/namespaces", {...})
        text = cluster.kubeconfig_for("portal", namespace="portal-system")

What to know:

* ``admin_kubeconfig`` is a file with a client certificate of ``system:masters``, all data inline;
  ``kubeconfig_for`` makes narrower identities (a token of a service account; the caller gives it
  rights with ``grant``).
* The port of the API server stays the same over kill, restart and pause. etcd keeps running.
* CRDs come before kube-controller-manager, whose garbage collector would otherwise notice them up
  to 30 s late.
* ``start_kueue`` wires webhooks and conversion, ``stop_kueue`` takes them away again; with
  ``keep_webhooks=True`` it leaves them, as a crash does: writes of Jobs and queues fail then.
* Priority and fairness is off (a client is never throttled by the server) and so is the admission
  plugin that taints new nodes, since no node lifecycle controller would untaint them.
* etcd does not sync to disk: a killed process loses nothing, a killed machine may.
"""

from __future__ import annotations

import base64
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from . import components, identities, kueue_install, kueue_setup, kwok_nodes
from .build import binary
from .certificates import Authority, KeyPair, write_signing_key
from .processes import LOOPBACK, Program, StartError, free_port, is_listening
from .rest import Rest, kubeconfig


class ControlPlane:
    """etcd, kube-apiserver and, as asked for, controllers, Kueue, kube-scheduler and kwok.

    Attributes:
        kueue: Part of ``build`` that Kueue, its CRDs and its webhooks come from.
    """

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.folder = folder
        self.kueue = "kueue"
        self.port = free_port()
        self.server = f"https://{LOOPBACK}:{self.port}"
        self.admin_kubeconfig = folder / "admin.kubeconfig"
        self.etcd_port = free_port()
        self._webhook_port = free_port()
        self._programs: dict[str, Program] = {}
        self._is_kueue_wired = False
        self._rest: Rest | None = None
        self._authority: Authority | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    # Life

    def start(
        self,
        *,
        crds: bool = True,
        controller_manager: bool = True,
        kueue_to_come: bool = False,
        controllers: Sequence[str] = (),
    ) -> None:
        """Start etcd and the API server, install Kueue's CRDs, start the controllers.

        Args:
            crds: install Kueue's CRDs and wait until they are served.
            controller_manager: run the controllers of Jobs, namespaces, service accounts, garbage.
            kueue_to_come: install the CRDs with Kueue's conversion right away; saves a change.
            controllers: what kube-controller-manager runs besides.

        Raises:
            StartError: a program did not come up; nothing is left running.
            PartMissingError: a program is not built.
        """
        try:
            self._write_certificates()
            self._start_etcd()
            self.start_api_server()
            if crds:
                no_kueue = kueue_setup.no_conversion()
                conversion = self._conversion() if kueue_to_come else no_kueue
                kueue_install.install_crds(self.rest, conversion, part=self.kueue)
                self._is_kueue_wired = kueue_to_come
            if controller_manager:
                self.start_controller_manager(controllers)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End every program at once; the folder stays. Safe to call again."""
        for program in reversed(list(self._programs.values())):
            program.kill()
        self._programs.clear()
        self._is_kueue_wired = False
        if self._rest is not None:
            self._rest.close()

    @property
    def rest(self) -> Rest:
        """A JSON client with every right, for setting tests up and looking at results."""
        if self._rest is None:
            raise StartError(f"control plane {self.name} was never started")
        return self._rest

    @property
    def authority(self) -> Authority:
        """The authority that signed this cluster's certificates."""
        if self._authority is None:
            raise StartError(f"control plane {self.name} was never started")
        return self._authority

    def log_of(self, program: str) -> Path:
        """Return the log file of a program, such as ``kueue`` or ``kube-apiserver``."""
        return self.folder / f"{program}.log"

    def programs(self) -> dict[str, Program]:
        """Return the programs that run now, by name."""
        return {name: each for name, each in self._programs.items() if each.is_running()}

    def mend(self) -> None:
        """Undo a test's faults: whatever was paused, killed or died is running again afterwards."""
        api_server = self._programs["kube-apiserver"]
        api_server.resume()
        for name in ("etcd", "kube-apiserver"):
            if not self._programs[name].is_running():
                self._programs[name].start()
        api_server.wait_until(self.rest.is_ready)
        for name, program in self._programs.items():
            if not program.is_running():
                program.start()
                if name == "kueue":
                    program.wait_until(lambda: is_listening(self._webhook_port))

    # Faults of the API server

    def start_api_server(self) -> None:
        """Start the API server on its port and etcd's data; return when it is ready."""
        arguments = components.kube_apiserver(self.folder, port=self.port, etcd_port=self.etcd_port)
        self._run("kube-apiserver", arguments).wait_until(self.rest.is_ready)

    def kill_api_server(self) -> None:
        """SIGKILL the API server; open connections break, new ones are refused."""
        self._programs["kube-apiserver"].kill()

    def pause_api_server(self) -> None:
        """SIGSTOP the API server: connections stay open and nothing is answered."""
        self._programs["kube-apiserver"].pause()

    def resume_api_server(self) -> None:
        """SIGCONT a paused API server."""
        self._programs["kube-apiserver"].resume()

    # Further programs

    def start_controller_manager(self, more: Sequence[str] = ()) -> None:
        """Run the few controllers that Jobs, namespaces and service accounts need, and more."""
        arguments = components.kube_controller_manager(
            self.folder, kubeconfig=self.admin_kubeconfig, more=more
        )
        self._run("kube-controller-manager", arguments)

    def start_scheduler(self) -> None:
        """Run kube-scheduler, which binds pods to nodes."""
        arguments = components.kube_scheduler(kubeconfig=self.admin_kubeconfig)
        self._run("kube-scheduler", arguments)

    def start_kwok(self) -> None:
        """Play the pods that are bound to nodes; see ``kwok_nodes`` for what steers them."""
        command = kwok_nodes.command(binary("kwok"), self.admin_kubeconfig)
        self._run("kwok", command[1:])

    def play_pods(self) -> None:
        """Run kube-scheduler and kwok, unless another test of a shared cluster did."""
        for name, start in (("kube-scheduler", self.start_scheduler), ("kwok", self.start_kwok)):
            running = self._programs.get(name)
            if running is None or not running.is_running():
                start()

    def start_kueue(
        self,
        config: Mapping[str, Any] | None = None,
        *,
        feature_gates: Mapping[str, bool] | None = None,
    ) -> None:
        """Run Kueue with webhooks and conversion; return when it is ready.

        Args:
            config: merged over the tests' own Configuration (Jobs only, MultiKueue with
                gcInterval 5 s and workerLostTimeout 10 s), key by key.
            feature_gates: further gates; VisibilityOnDemand is always off.

        Raises:
            StartError: Kueue ended or was not ready in time.
        """
        self.ensure_namespace(kueue_setup.NAMESPACE)
        health_port = free_port()
        settings = kueue_setup.configuration(
            config or {},
            webhook_port=self._webhook_port,
            health_port=health_port,
            certificates=self.folder / "webhook",
        )
        path = self.folder / "kueue.yaml"
        path.write_text(yaml.safe_dump(settings))
        gates = {**kueue_setup.DEFAULT_FEATURE_GATES, **(feature_gates or {})}
        rendered = ",".join(f"{name}={str(is_on).lower()}" for name, is_on in gates.items())
        program = self._run(
            "kueue",
            [f"--config={path}", f"--feature-gates={rendered}", "--zap-log-level=2"],
            part=self.kueue,
            prefix=kueue_setup.metrics_certificate_prefix(self.folder, self.authority),
            environment={
                "KUBECONFIG": str(self.kubeconfig_as(kueue_setup.USER)),
                "POD_NAMESPACE": kueue_setup.NAMESPACE,
            },
        )
        try:
            self._wire(program, settings["integrations"]["frameworks"])
        except StartError:
            program.kill()
            del self._programs["kueue"]
            raise

    def run_as(self, user: str, name: str, arguments: Sequence[str]) -> Program:
        """Run a controller under a name of its own, which may do anything."""
        environment = {"KUBECONFIG": str(self.kubeconfig_as(user))}
        return self._run(name, arguments, environment=environment)

    def stop_kueue(self, *, keep_webhooks: bool = False) -> None:
        """End Kueue; unless told otherwise the cluster goes on as one that never had it."""
        self._programs["kueue"].kill()
        if not keep_webhooks:
            del self._programs["kueue"]
            kueue_install.remove_webhooks(self.rest)
            kueue_install.set_conversion(self.rest, kueue_setup.no_conversion())
            self._is_kueue_wired = False

    def replace_crds(self, part: str) -> None:
        """Put the CRDs of another version of Kueue here, as the first step of an upgrade.

        The controller that runs goes on; the next one that starts is of that version.
        """
        kueue_install.replace_crds(self.rest, self._conversion(), part=part)
        self.kueue = part

    def terminate_kueue(self, *, within_s: float = 30.0) -> None:
        """End Kueue as a Deployment does that replaces it; its webhooks stay set up.

        Raises:
            StartError: it had not ended in time; it is killed.
        """
        program = self._programs["kueue"]
        program.terminate()
        ends = time.monotonic() + within_s
        while program.is_running():
            if time.monotonic() > ends:
                program.kill()
                raise StartError(f"Kueue of {self.name} did not end within {within_s:g} s")
            time.sleep(0.05)

    # Content

    def ensure_namespace(self, name: str) -> None:
        """Create a namespace unless it exists."""
        self.rest.ensure("/api/v1/namespaces", {"metadata": {"name": name}})

    def create_nodes(
        self, count: int, *, shape: kwok_nodes.NodeShape | None = None, prefix: str = "node"
    ) -> list[str]:
        """Create Ready nodes ``PREFIX-0`` to ``PREFIX-(count - 1)`` and return their names."""
        shape = shape or kwok_nodes.NodeShape()
        names = [f"{prefix}-{number}" for number in range(count)]
        for name in names:
            self.rest.ensure("/api/v1/nodes", shape.manifest(name))
        return names

    def grant(
        self, service_account: str, *, namespace: str, rules: Sequence[Mapping[str, Any]]
    ) -> None:
        """Give a service account rules on the whole cluster, in a ClusterRole of its own."""
        identities.grant(self.rest, service_account, namespace=namespace, rules=rules)

    def kubeconfig_for(
        self, service_account: str, *, namespace: str, lifetime_s: int = 3600
    ) -> str:
        """Return a kubeconfig with a fresh token of a service account, which is made if need be.

        Args:
            service_account: its name; it has no rights until ``grant`` or a test gives it some.
            namespace: where it lives; made if need be.
            lifetime_s: seconds until the token ends, at least 600.
        """
        self.ensure_namespace(namespace)
        token = identities.mint_token(
            self.rest, service_account, namespace=namespace, lifetime_s=lifetime_s
        )
        return self._kubeconfig({"token": token})

    def kubeconfig_as(self, user: str) -> Path:
        """Return the file of a kubeconfig for a user by name, who may do anything.

        For controllers, whose names admission policies ask for.
        """
        path = self.folder / f"{user.rpartition(':')[2]}.kubeconfig"
        pair = self.authority.client(user, group="controllers")
        identities.grant_everything(self.rest, user)
        path.touch(mode=0o600)
        path.write_text(self._kubeconfig(_certificate_user(pair)))
        return path

    def rest_as(self, user: str) -> Rest:
        """Return a JSON client that acts as a user by name, who may do anything; see ``close``."""
        identities.grant_everything(self.rest, user)
        admin = self.folder / "admin"
        return Rest(
            self.server,
            authority=self.authority.pair.certificate,
            certificate=admin.with_suffix(".crt"),
            key=admin.with_suffix(".key"),
            user=user,
        )

    def rest_with_token(self, token: str) -> Rest:
        """Return a JSON client with the rights of a token; the caller closes it."""
        return Rest(self.server, authority=self.authority.pair.certificate, token=token)

    # Inside

    def _run(
        self,
        name: str,
        arguments: Sequence[str],
        *,
        part: str = "",
        prefix: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> Program:
        running = self._programs.get(name)
        if running is not None and running.is_running():
            raise StartError(f"{name} already runs in {self.name}")
        command = [*prefix, str(binary(part or name)), *arguments]
        program = Program(command, name=name, log=self.log_of(name), environment=environment)
        self._programs[name] = program
        return program

    def _write_certificates(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._authority = authority = Authority(self.folder)
        authority.server("server")
        webhook = authority.server("webhook")
        served = self.folder / "webhook"
        served.mkdir(exist_ok=True)
        (served / "tls.crt").write_bytes(webhook.certificate.read_bytes())
        (served / "tls.key").write_bytes(webhook.key.read_bytes())
        write_signing_key(self.folder / "service-accounts.key")
        admin = authority.client("admin", group="system:masters")
        self.admin_kubeconfig.touch(mode=0o600)
        self.admin_kubeconfig.write_text(self._kubeconfig(_certificate_user(admin)))
        self._rest = Rest(
            self.server,
            authority=authority.pair.certificate,
            certificate=admin.certificate,
            key=admin.key,
        )

    def _kubeconfig(self, user: dict[str, Any]) -> str:
        authority = _base64(self.authority.pair.certificate)
        return kubeconfig(self.server, authority_base64=authority, user=user, name=self.name)

    def _start_etcd(self) -> None:
        # Certificates and ports are new, so what an earlier run left would not fit any more.
        shutil.rmtree(self.folder / "etcd", ignore_errors=True)
        arguments = components.etcd(self.folder, port=self.etcd_port)
        self._run("etcd", arguments).wait_until(lambda: is_listening(self.etcd_port))

    def _wire(self, kueue: Program, frameworks: Sequence[str]) -> None:
        """Let the API server call Kueue: conversion while it starts, webhooks once it listens."""
        if not self._is_kueue_wired:
            kueue_install.set_conversion(self.rest, self._conversion())
            self._is_kueue_wired = True
        kueue.wait_until(lambda: is_listening(self._webhook_port))
        wanted = kueue_setup.webhook_configurations(
            self._webhook_port, self.authority.pair, frameworks=frameworks, part=self.kueue
        )
        kueue_install.configure_webhooks(self.rest, wanted)

    def _conversion(self) -> dict[str, Any]:
        return kueue_setup.webhook_conversion(self._webhook_port, self.authority.pair)


def _certificate_user(pair: KeyPair) -> dict[str, Any]:
    return {
        "client-certificate-data": _base64(pair.certificate),
        "client-key-data": _base64(pair.key),
    }


def _base64(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
