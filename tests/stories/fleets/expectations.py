"""What a story expects, in its own words, against what the clusters hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from clusters.errors import NotFound
from clusters.kube import resources as r
from clusters.kube.client import KubeClient
from tests.stories.fleets.form import MANAGER, WORKERS, FleetStory
from tests.stories.fleets.objects import check_of
from tests.stories.fleets.snapshot import objects_of
from tests.stories.statuses import plain, state_of

Document = Mapping[str, Any]
Objects = Mapping[str, Mapping[str, Mapping[str, Document]]]


def unmet(
    client_of: Callable[[str], KubeClient],
    story: FleetStory,
    expected: Mapping[str, Mapping[str, Any]],
    cluster: Callable[[str], str] = str,
) -> list[str]:
    """Expectations that do not hold now, in words.

    Args:
        client_of: A client by cluster.
        story: Whose objects.
        expected: As ``form`` says.
        cluster: What a cluster's name in the story means.
    """
    seen: Objects = {
        name: objects_of(client_of(name), story.namespace) for name in (MANAGER, *WORKERS)
    }
    return [
        f"{kind} of {name}: {found!r}, not {want!r}"
        for kind, wanted in expected.items()
        for name, given in wanted.items()
        for want, found in [_pair(kind, name, given, seen, story, client_of, cluster)]
        if found != want
    ]


def _pair(
    kind: str,
    name: str,
    given: Any,
    seen: Objects,
    story: FleetStory,
    client_of: Callable[[str], KubeClient],
    cluster: Callable[[str], str],
) -> tuple[Any, Any]:
    """(wanted, found) of one expectation."""
    workload = seen[MANAGER]["workloads"].get(name)
    status = (workload or {}).get("status") or {}
    match kind:
        case "workloads":
            return given, _state(workload)
        case "cluster":
            return (cluster(given) if given else None), status.get("clusterName") or None
        case "nominated":
            return _named(given, cluster), sorted(status.get("nominatedClusterNames") or ())
        case "copies":
            return _named(given, cluster), [w for w in WORKERS if name in seen[w]["workloads"]]
        case "jobs":
            return _named(given, cluster), [w for w in WORKERS if name in seen[w]["jobs"]]
        case "checks":
            states = {each["name"]: each["state"] for each in status.get("admissionChecks") or ()}
            return given, states.get(check_of(story))
        case "status":
            found = (seen[MANAGER]["jobs"].get(name) or {}).get("status") or {}
            return given, {key: found.get(key) or 0 for key in given}
        case _:
            return given, _is_active(client_of(MANAGER), cluster(name))


def _named(given: Iterable[str] | None, cluster: Callable[[str], str]) -> list[str]:
    return sorted(cluster(each) for each in given or ())


def _state(workload: Document | None) -> str:
    return state_of(
        None
        if workload is None
        else {"spec": workload["spec"], "status": plain(workload.get("status") or {})}
    )


def _is_active(client: KubeClient, worker: str) -> bool:
    try:
        found = client.get(r.MULTIKUEUE_CLUSTER, worker)
    except NotFound:
        return False
    return any(
        entry["type"] == "Active" and entry["status"] == "True"
        for entry in (found.get("status") or {}).get("conditions") or ()
    )
