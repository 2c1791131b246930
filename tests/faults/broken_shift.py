"""A dispatch shift with one guard taken out: ``python -m tests.faults.broken_shift VARIANT …``.

For negative controls of the observer; what follows the variant goes to ``manage.py run_shift``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Final

import django


def forget_ownership() -> None:
    """Whatever has a copy's name counts as an old one of the portal's own, and makes way."""
    from clusters.errors import Conflict, Refusal
    from clusters.reconcile.multikueue import copies

    def make_way(there, sender, write):  # type: ignore[no-untyped-def]
        sender.client.delete(write.resource, write.name, namespace=write.namespace)
        raise Conflict(Refusal("it makes way"))

    copies.Copies._ours = make_way  # type: ignore[method-assign]


def prefer_the_oldest() -> None:
    """The copy that was admitted first wins, also one that a returning worker brings along."""
    from clusters.kueue.multikueue import decide as multikueue
    from clusters.kueue.multikueue import group as multikueue_group
    from clusters.kueue.multikueue import rules as multikueue_rules

    def standing(view: multikueue_group.GroupView) -> dict[str, multikueue_group.Document]:
        found = view.group.copies.items()
        return {name: copy.workload for name, copy in found if copy.workload and copy.is_ours}

    multikueue_group.GroupView.standing = standing  # type: ignore[method-assign]
    rules = [rule for rule in multikueue.RULES if rule is not multikueue_rules._stale_copies]
    multikueue.RULES = tuple(rules)  # type: ignore[misc]


def wait_for_nobody() -> None:
    """A worker that cannot be reached is given up at once."""
    from clusters.reconcile.dispatch import body

    fleet_of = body.DispatchBody._fleet
    body.DispatchBody._fleet = lambda shift, check: replace(  # type: ignore[method-assign]
        fleet_of(shift, check), worker_lost_timeout=timedelta(0)
    )


def leave_everything() -> None:
    """Nothing is ever removed from a worker."""
    from clusters.reconcile.multikueue import copies

    copies.Copies._remove = lambda *args, **kwargs: None  # type: ignore[method-assign]


VARIANTS: Final[Mapping[str, Callable[[], None]]] = {
    "forgets-ownership": forget_ownership,
    "prefers-the-oldest": prefer_the_oldest,
    "waits-for-nobody": wait_for_nobody,
    "leaves-everything": leave_everything,
}


def main(variant: str, arguments: list[str]) -> None:
    """Run the shift as its management command would, without the guard."""
    django.setup()
    from django.core.management import execute_from_command_line

    VARIANTS[variant]()
    execute_from_command_line(["manage.py", "run_shift", *arguments])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
