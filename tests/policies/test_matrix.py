"""Who tries to take GPUs past the budget, on a real API server in both modes; what they are told.

The answers are the table of docs/security.md. Each guard that refuses is taken out once, alone:
then what it refused is let through.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.controlplane import build
from tests.controlplane.components import POD_MAKERS
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.fixtures import require_parts
from tests.policies import cells, objects
from tests.policies.ground import People, queues_for
from tests.policies.matrix import Matrix, in_words, table

pytestmark = [pytest.mark.controlplane, pytest.mark.slow]

DOCUMENT = Path(__file__).parents[2] / "docs" / "security.md"
BEGIN, END = "<!-- matrix: begin -->\n", "\n<!-- matrix: end -->"
# Built in, with lists and with maps of pod sets; with a part that its controller adds.
FEW_KINDS = os.environ.get("MATRIX_KINDS", "Job,JobSet,PyTorchJob,RayCluster").split(",")
KUEUE_STARTS = frozenset({"Job", "Pod", "JobSet"})
KUEUE = {
    "integrations": {
        "frameworks": ["batch/job", "pod", "jobset.x-k8s.io/jobset", "deployment", "statefulset"]
    }
}


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """One API server with every kind and every controller of pods; no Kueue at first."""
    require_parts(("etcd", build.KUBERNETES, "kueue", "jobset", "kuberay"))
    found = ControlPlane("policies", tmp_path_factory.mktemp("policies"))
    found.start(controllers=POD_MAKERS)
    try:
        for crd in objects.crds():
            found.rest.ensure("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
        queues_for(found)
        yield found
    finally:
        found.stop()


@pytest.fixture(scope="module")
def matrices(plane: ControlPlane) -> Iterator[tuple[Matrix, Matrix]]:
    """Both modes, one after the other, with a few kinds of jobs."""
    people = People(plane)
    yield tried(plane, people, *FEW_KINDS)
    people.close()


def tried(plane: ControlPlane, people: People, *kinds: str) -> tuple[Matrix, Matrix]:
    rows = list(cells.every_cell(*kinds))
    suffix = "" if kinds else "-all"
    portal = Matrix(plane, people, is_portal_mode=True, suffix=suffix)
    portal.run(rows)
    portal.control()
    portal.remove()
    plane.start_kueue(KUEUE)
    kueue = Matrix(plane, people, is_portal_mode=False, kueue_starts=KUEUE_STARTS, suffix=suffix)
    kueue.run(rows)
    kueue.control()
    kueue.remove()
    plane.stop_kueue()
    return portal, kueue


def test_every_try_is_refused_or_waits_as_the_table_says(matrices: tuple[Matrix, Matrix]) -> None:
    portal, kueue = matrices
    shown = DOCUMENT.read_text().partition(BEGIN)[2].partition(END)[0].splitlines()
    for row, answer in portal.tried.items():
        words, *said = (
            row.words,
            *(in_words(each, row.kind) for each in (answer, kueue.tried[row])),
        )
        ends = f" | {said[0]} | {said[1]} |"
        lines = [line for line in shown if line.startswith(f"| {words}") and line.endswith(ends)]
        kinds = ("", row.kind, "every kind")
        assert any(row.kind in line or kinds[2] in line for line in lines), (words, row.kind, said)


def test_what_is_known_to_refuse_refuses(matrices: tuple[Matrix, Matrix]) -> None:
    """In the sentence that was known before; where a Kueue starts jobs it may be the first."""
    portal, _ = matrices
    said = {row: in_words(answer, row.kind) for row, answer in portal.tried.items()}
    others = {row: told for row, told in said.items() if told != f"refused: {row.refusal}"}
    assert {row.words: told for row, told in others.items() if row.refusal} == {}


def test_no_guard_is_idle(matrices: tuple[Matrix, Matrix]) -> None:
    """Taken out alone, each lets through something that it refused."""
    for matrix in matrices:
        assert not [(row.words, row.kind, answer.text) for row, answer in matrix.idle], matrix.name


@pytest.mark.slow
def test_table_of_every_kind_is_that_of_the_document(plane: ControlPlane) -> None:
    people = People(plane)
    portal, kueue = tried(plane, people)
    people.close()
    made = table(portal.tried, kueue.tried)
    text = DOCUMENT.read_text()
    before, _, rest = text.partition(BEGIN)
    shown, _, after = rest.partition(END)
    if os.environ.get("UPDATE_GOLDEN"):
        DOCUMENT.write_text(f"{before}{BEGIN}{made}{END}{after}")
        shown = made
    assert shown == made
    for matrix in (portal, kueue):
        assert not [(row.words, row.kind, answer.text) for row, answer in matrix.idle], matrix.name
