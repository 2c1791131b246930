"""Ask what a change would lead to, and wait for the clusters' answers. Nothing is saved."""

from __future__ import annotations

import time
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from django.core.exceptions import ObjectDoesNotExist
from django.core.management.base import BaseCommand, CommandError
from django.db.models import QuerySet

from budgets.errors import Rejected
from budgets.models import Account, Flavor, Pool, Workspace
from clusters.explaining.answers import read_answer
from clusters.explaining.report import answer_lines
from clusters.models import Cluster, Question
from clusters.selectors.names import every_name
from clusters.services.questions import ReplyState, answer_of
from clusters.services.what_if import Asked, ask_add, ask_drain, ask_raise, ask_weigh
from clusters.services.what_if_nodes import ask_rack, ask_taint

POLL_S = 0.1


class Command(BaseCommand):
    """The questions of the what-if page, as an operator on the server; every name is shown."""

    help = (
        "Ask the clusters what a change would lead to: a larger budget, another weight, more "
        "GPUs, a worker that is drained, a new rack, or nodes that take no pods. Nothing is saved. "
        "Exit status 1: a cluster did not answer."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        asked = parser.add_subparsers(dest="change", required=True, metavar="CHANGE")
        more = asked.add_parser(
            "raise", help="raise a budget by some GPUs; a negative number lowers it"
        )
        more.add_argument("workspace", metavar="NAMESPACE")
        _gpus(more)
        add = asked.add_parser("add", help="add nodes with GPUs to a worker")
        add.add_argument("cluster", metavar="WORKER")
        _gpus(add)
        _receiver(add, is_required=True)
        weigh = asked.add_parser("weigh", help="give a workspace another weight of fair sharing")
        weigh.add_argument("workspace", metavar="NAMESPACE")
        weigh.add_argument("--weight", required=True, type=_number, metavar="WEIGHT", help="as 2")
        drain = asked.add_parser("drain", help="drain a worker")
        drain.add_argument("cluster", metavar="WORKER")
        rack = asked.add_parser("rack", help="add nodes that stand together")
        rack.add_argument("cluster", metavar="WORKER")
        rack.add_argument("--flavor", required=True, metavar="SLUG", help="flavor of the nodes")
        rack.add_argument("--nodes", required=True, type=int, metavar="NODES", help="how many")
        rack.add_argument("--gpus", type=int, metavar="GPUS", help="of each; as the flavor says")
        _domain(rack, "domain that they join, from the largest level on; else a new one")
        _receiver(rack)
        taint = asked.add_parser("taint", help="let nodes take no new pods, or drain them")
        taint.add_argument("cluster", metavar="WORKER")
        taint.add_argument("--flavor", metavar="SLUG", help="flavor whose nodes")
        _domain(taint, "only those in this domain, from the largest level on")
        taint.add_argument(
            "--node", action="append", default=[], dest="names", metavar="NAME",
            help="a node by its name; may be given several times",
        )  # fmt: skip
        taint.add_argument(
            "--taint", default="", metavar="KEY[=VALUE]", help="some pods tolerate; else a cordon"
        )
        taint.add_argument(
            "--drain", action="store_true", help="what runs there stops and queues again"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Ask, wait, print; exit code 1 when a cluster does not answer."""
        try:
            asked = _QUESTIONS[options["change"]](options)
        except Rejected as error:
            raise CommandError("\n".join(fault.message for fault in error.faults)) from error
        for note in asked.notes:
            self.stdout.write(f"This change could not be saved as it is: {note}")
        problems = [text for row in asked.questions if (text := self._tell(row))]
        if problems:
            raise CommandError("\n".join(problems))

    def _tell(self, question: Question) -> str:
        """Print what a cluster answers; what it could not say is returned."""
        names = every_name()
        while (reply := answer_of(question)).state is ReplyState.WAITING:
            time.sleep(POLL_S)
        if reply.state is not ReplyState.ANSWERED:
            return f"{question.cluster}: {reply.problem}"
        self.stdout.write(f"{question.cluster}:")
        for line in answer_lines(read_answer(reply.answer, names)):
            self.stdout.write(f"  {line}")
        return ""


def _number(text: str) -> Decimal:
    try:
        return Decimal(text)
    except ArithmeticError as error:
        raise ArgumentTypeError(f"{text!r} is no number") from error


def _domain(parser: ArgumentParser, words: str) -> None:
    parser.add_argument(
        "--in", action="append", default=[], dest="within", metavar="VALUE",
        help=f"{words}; once for each level",
    )  # fmt: skip


def _receiver(parser: ArgumentParser, *, is_required: bool = False) -> None:
    receiver = parser.add_mutually_exclusive_group(required=is_required)
    receiver.add_argument("--account", metavar="SLUG", help="account whose own pool gets the GPUs")
    receiver.add_argument("--pool", metavar="SLUG", help="platform pool that gets the GPUs")


def _gpus(parser: ArgumentParser) -> None:
    parser.add_argument("--flavor", required=True, metavar="SLUG", help="flavor of the GPUs")
    parser.add_argument("--by", required=True, type=int, metavar="GPUS", help="number of GPUs")


_FLAVORS: QuerySet[Flavor] = Flavor.objects.select_related("topology")
_QUESTIONS: dict[str, Callable[[dict[str, Any]], Asked]] = {
    "raise": lambda given: ask_raise(
        None,
        workspace=_workspace(given),
        flavor=_named(Flavor.objects.all(), "flavor", slug=given["flavor"]),
        by=given["by"],
    ),
    "add": lambda given: ask_add(
        None,
        cluster=_worker(given),
        flavor=_named(Flavor.objects.all(), "flavor", slug=given["flavor"]),
        by=given["by"],
        **_receiver_of(given),
    ),
    "weigh": lambda given: ask_weigh(None, workspace=_workspace(given), weight=given["weight"]),
    "drain": lambda given: ask_drain(None, cluster=_worker(given)),
    "rack": lambda given: ask_rack(
        None,
        cluster=_worker(given),
        flavor=_named(_FLAVORS, "flavor", slug=given["flavor"]),
        nodes=given["nodes"],
        gpus=given["gpus"],
        within=given["within"],
        **_receiver_of(given),
    ),
    "taint": lambda given: ask_taint(
        None,
        cluster=_worker(given),
        flavor=_perhaps(_FLAVORS, "flavor", given["flavor"]),
        within=given["within"],
        names=given["names"],
        taint=given["taint"],
        drains=given["drain"],
    ),
}


def _receiver_of(given: dict[str, Any]) -> dict[str, Any]:
    return {
        "account": _perhaps(Account.objects.all(), "account", given["account"]),
        "pool": _perhaps(Pool.objects.select_related("account"), "pool", given["pool"]),
    }


def _workspace(given: dict[str, Any]) -> Workspace:
    rows = Workspace.objects.select_related("account", "budget", "budget__in_force")
    found: Workspace = _named(rows, "workspace", namespace=given["workspace"])
    return found


def _worker(given: dict[str, Any]) -> Cluster:
    rows = Cluster.objects.filter(state=Cluster.State.ACTIVE)
    found: Cluster = _named(rows, "cluster", slug=given["cluster"])
    return found


def _perhaps(rows: QuerySet[Any], what: str, slug: str | None) -> Any:
    return _named(rows, what, slug=slug) if slug else None


def _named(rows: QuerySet[Any], what: str, **key: str) -> Any:
    try:
        return rows.get(**key)
    except ObjectDoesNotExist as error:
        raise CommandError(f"There is no {what} {next(iter(key.values()))!r}.") from error
