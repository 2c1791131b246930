"""Every sentence of the generated policies is the answer to one of the tries; without a cluster.

The tries themselves are in ``cells``; what real API servers answered is the table of
docs/security.md. A sentence that is in neither belongs to a rule that nobody tries.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from clusters.jobs.table import suspendable
from clusters.manifests.policies import policy_documents
from clusters.manifests.rbac import Post
from clusters.manifests.wish import PolicyWish
from tests.policies.cells import every_cell
from tests.policies.ground import Answer
from tests.policies.matrix import in_words
from tests.policies.test_matrix import BEGIN, DOCUMENT, END

PREFIX = "gpu-budget-it-"
KINDS = {kind.resource.plural: kind.resource.kind for kind in suspendable()}
POSTS = {
    "-".join((name, "portal" if is_portal_mode else "kueue", "" if takes_jobs else "strict")): (
        PolicyWish(
            Post(is_manager, is_portal_mode, "it", is_single=is_single),
            allows_local_jobs=takes_jobs,
            operators=("operator",),
            denies_elsewhere=True,
        )
    )
    for name, is_manager, is_single in (
        ("worker", False, False),
        ("manager", True, False),
        ("single", False, True),
    )
    for is_portal_mode in (True, False)
    for takes_jobs in (True, False)
}


def sentences(wish: PolicyWish) -> Iterator[tuple[str, str]]:
    """Kind of job that a policy is about, empty for none; and what it says when it refuses."""
    for document in policy_documents(wish):
        kind = KINDS.get(document["metadata"]["name"].removeprefix(PREFIX), "")
        for row in document["spec"].get("validations", ()):
            yield kind, row["message"]


def answers() -> Iterator[tuple[str, frozenset[str]]]:
    """What a try comes to, and the kinds of jobs that it is tried with."""
    table = DOCUMENT.read_text().partition(BEGIN)[2].partition(END)[0]
    for line in table.splitlines():
        subject, *told = line.strip("| ").split(" | ")
        kinds = frozenset(subject.rpartition(": ")[2].split(", "))
        yield from ((words, kinds) for words in told)
    for row in every_cell():
        if row.refusal:
            yield f"refused: {row.refusal}", frozenset({row.kind})


@pytest.mark.parametrize("name", POSTS)
def test_every_rule_of_the_policies_is_tried(name: str) -> None:
    """What is said of "this job" is tried with each kind of job."""
    met: dict[str, set[str]] = {}
    for words, kinds in answers():
        met.setdefault(words, set()).update(kinds)

    def is_met(kind: str, message: str) -> bool:
        words = in_words(Answer(message), kind)
        kinds = met.get(words, set())
        if in_words(Answer(message), "") in met or {kind, "every kind"} & kinds:
            return True
        return bool(kinds) and "his job" not in words

    assert [told for told in sentences(POSTS[name]) if not is_met(*told)] == []


def test_what_a_try_is_said_to_meet_is_said_by_a_policy() -> None:
    said = {
        in_words(Answer(message), kind)
        for wish in POSTS.values()
        for kind, message in sentences(wish)
    }
    assert {row.refusal for row in every_cell() if f"refused: {row.refusal}" not in said} <= {""}
