"""Rights of the portal's own service account as the chart carries them, made from the code's table.

Helm cannot ask the code, so the chart has all rules that any of its values can call for, each with
what it needs: a kind of job, workers, or something else that the portal does there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import combinations

from clusters.documents.resources import Resource
from clusters.jobs.table import JOB, KINDS
from clusters.manifests.rbac import Post, Rule, rule_document
from clusters.manifests.rights import multikueue_rules, portal_rules

PURPOSES = ("single", "manager", "worker")
MODES = ("kueue", "portal")
KINDS_BY_NAME = {row.integration: row.resource for row in KINDS.values() if row is not JOB}
ALSO = ("nominates", "cures", "profiles", "ownQueue")
CONDITIONS = (*KINDS_BY_NAME, "workers", *ALSO)
# What the template puts in.
INSTALLATION, LEASES, WORKER = "INSTALLATION", "LEASES", "WORKER"
HEAD = """\
# Rights of the portal's own service account, for ownCluster, from clusters/manifests/rights.py by
# UPDATE_GOLDEN=1 pytest tests/chart/test_own_rights.py
"""

Rules = Callable[[Collection[str]], Iterable[Rule]]


def post_with(
    purpose: str, mode: str, conditions: Collection[str], *, workers: tuple[str, ...] = (WORKER,)
) -> Post:
    """A cluster of that purpose where those conditions hold."""
    return Post(
        is_manager=purpose == "manager",
        is_portal_mode=mode == "portal",
        installation=INSTALLATION,
        workers=workers if "workers" in conditions else (),
        lease_namespace=LEASES,
        kinds=kinds_of(conditions),
        nominates="nominates" in conditions,
        cures="cures" in conditions,
        has_profiles="profiles" in conditions,
        is_single=purpose == "single",
        has_own_queue="ownQueue" in conditions,
    )


def kinds_of(conditions: Collection[str]) -> tuple[Resource, ...]:
    return tuple(kind for name, kind in KINDS_BY_NAME.items() if name in conditions)


def identities() -> Iterator[tuple[str, Rules]]:
    """Each set of rights by its name in the file."""
    for purpose in PURPOSES:
        for mode in MODES:
            yield (
                f"{purpose}-{mode}",
                lambda chosen, at=(purpose, mode): portal_rules(post_with(*at, chosen)),
            )
    yield "multikueue", lambda chosen: multikueue_rules(kinds_of(chosen))


def needed(rules: Rules) -> list[tuple[frozenset[str], Rule]]:
    """Every rule with the conditions, two at most, that call for it."""
    found: list[tuple[frozenset[str], Rule]] = []
    for size in range(3):
        for chosen in combinations(CONDITIONS, size):
            known = {rule for needs, rule in found if needs <= set(chosen)}
            new = [rule for rule in dict.fromkeys(rules(chosen)) if rule not in known]
            found += [(frozenset(chosen), rule) for rule in new]
    return found


def chart_file() -> str:
    """What the chart carries."""
    lines = []
    for name, rules in identities():
        lines.append(f"{name}:")
        for needs, rule in needed(rules):
            row = {
                "why": rule.why,
                "needs": sorted(needs),
                "namespace": rule.namespace,
                "rule": rule_document(rule),
            }
            lines.append(f"  - {json.dumps(row)}")
    return HEAD + "\n".join(lines) + "\n"
