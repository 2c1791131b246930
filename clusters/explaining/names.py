"""What a reader may call others: own names as they are, others' as "another account".

Built from what may be shown, not from what must not: a name that is not known to be visible has no
way into a text. Kueue's own messages are passed on with every word of theirs weighed.
Source: ARCHITECTURE, "What an owner sees of others".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from budgets.plan import POOL_PREFIX
from clusters.documents.queues import workspace_of

ANOTHER_ACCOUNT: Final = "another account"
PLATFORM_POOL: Final = "the platform pool"
SOMEBODY: Final = "somebody else"

# Parts of a message that can carry names of others, by the words in front of them.
_PATH = re.compile(r"[;,]?\s*\b(?:(?:preemptor|preemptee) )?path: ?/\S*", re.IGNORECASE)
_MISSING = re.compile(r"[,;]? ?\b\d+ more needed\b")
_UID = re.compile(r"\((?:UID|JobUID): ?[^)]*\)\s?")
_BARE_UID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
# Names of Kubernetes objects, with a namespace in front or not.
_PARTS = re.compile(r"[/.]")
_WORD = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._/-]*[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class Names:
    """The names that one reader may see.

    Attributes:
        workspaces: Namespace → name of the workspaces that the reader sees; None for everything.
        accounts: Slug → name of the accounts in which the reader sees something.
        flavors, topologies: Slug → name.
        clusters: Slug → name; who does not see clusters is told of none.
        queues: ClusterQueue or Cohort → whose it is, for a reader who sees everything.
        foreign: Names that must not be passed on where they stand as a word of a message:
            namespaces, accounts, pools and workloads that the reader does not see.
    """

    workspaces: Mapping[str, str] | None
    accounts: Mapping[str, str] = field(default_factory=dict)
    flavors: Mapping[str, str] = field(default_factory=dict)
    topologies: Mapping[str, str] = field(default_factory=dict)
    clusters: Mapping[str, str] = field(default_factory=dict)
    queues: Mapping[str, str] = field(default_factory=dict)
    foreign: frozenset[str] = frozenset()

    @property
    def sees_everything(self) -> bool:
        """Nothing is hidden from this reader."""
        return self.workspaces is None

    def sees(self, namespace: str) -> bool:
        """Whether a namespace, or the ClusterQueue of that name, may be named."""
        return self.workspaces is None or workspace_of(namespace) in self.workspaces

    def sees_job(self, key: str, cluster_queue: str) -> bool:
        """Whether a job may be told by its name, ``namespace/name``."""
        return self.sees(key.partition("/")[0]) and self.sees(cluster_queue)

    def concerns(self, cluster_queue: str) -> bool:
        """Whether a ClusterQueue or Cohort is of an account in which the reader sees something."""
        return self.sees(cluster_queue) or cluster_queue.partition("-")[0] in self.accounts

    def queue(self, cluster_queue: str) -> str:
        """What a reader calls the owner of a ClusterQueue or Cohort."""
        cluster_queue = workspace_of(cluster_queue)
        if self.workspaces is None:
            return self.queues.get(cluster_queue, cluster_queue) or SOMEBODY
        if cluster_queue in self.workspaces:
            return f"workspace {self.workspaces[cluster_queue]}"
        if cluster_queue.startswith(POOL_PREFIX):
            return PLATFORM_POOL
        account, hyphen, _ = cluster_queue.partition("-")
        if account in self.accounts:
            name = self.accounts[account]
            return f"another workspace of {name}" if hyphen else f"account {name}"
        return ANOTHER_ACCOUNT

    def flavor(self, slug: str) -> str:
        """A flavor's name."""
        return self.flavors.get(slug, slug)

    def topology(self, slug: str) -> str:
        """A topology's name."""
        return self.topologies.get(slug, slug)

    def cluster(self, slug: str) -> str:
        """A cluster's name."""
        return self.clusters.get(slug, slug)

    def wary_of(self, found: Iterable[str]) -> Names:
        """The same with further names, or keys, that must not be passed on unless they are seen."""
        if self.workspaces is None:
            return self
        words = {
            word for key in found if not self.sees(key.partition("/")[0]) for word in _parts(key)
        }
        words = {word for word in words if not self.sees(word)} - self.flavors.keys()
        return replace(self, foreign=self.foreign | words) if words - self.foreign else self

    def message(self, text: str) -> str:
        """A text of Kueue as it may be passed on."""
        if self.workspaces is None or not text:
            return text
        # How much is missing says how much others have left.
        text = _MISSING.sub("", _PATH.sub("", text))
        text = _BARE_UID.sub("not shown", _UID.sub("", text))
        return _WORD.sub(lambda found: self._word(found.group()), text) if self.foreign else text

    def _word(self, word: str) -> str:
        return word if self.foreign.isdisjoint(_parts(word)) else SOMEBODY


def _parts(word: str) -> set[str]:
    """A key and its pieces, any of which could be a name."""
    return {word, *word.split("/"), *_PARTS.split(word)} - {""}
