"""A body that decides, turned by hand on a registered cluster."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from clusters.kube.client import KubeClient
from clusters.kube.pulse import Pulse
from clusters.reconcile.admission.body import AdmissionBody
from clusters.reconcile.context import Clients, ShiftContext, registered
from clusters.reconcile.dispatch.body import DispatchBody
from clusters.vault import unseal

Deciding = TypeVar("Deciding", AdmissionBody, DispatchBody)


@contextmanager
def deciding(slug: str, kind: Callable[[ShiftContext], Deciding]) -> Iterator[Deciding]:
    """A body that admits, or dispatches, with real watches and without a Lease."""
    registration = registered(slug)
    assert registration is not None
    stop, clients = threading.Event(), Clients()
    with KubeClient.from_kubeconfig(unseal(registration.sealed)) as client:
        context = ShiftContext(
            registration,
            client=client,
            clients=clients,
            pulse=Pulse(client),
            stop=stop,
            fence=lambda: None,
            holder="test",
        )
        body = kind(context)
        try:
            body.open()
            yield body
        finally:
            stop.set()
            body.close()
            clients.close()
