"""The table of dispatch stories by column, as it stands in ``tests/stories/README.md``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tests.stories.fleets.form import COLUMNS, FleetStory
from tests.stories.results import last_passed

README = Path(__file__).parent.parent / "README.md"
_NAMES = {
    "memory": "(a) in memory",
    "embedded": "(b) embedded",
    "portal": "(c) portal on API servers",
    "kueue": "(d) real Kueue",
}
_HEAD = """\
# Stories of dispatch

What happens to a job between its submission on the manager and its end on a worker, as data:
`dispatch/*.yaml`, in the form that `fleets/form.py` describes. Every story is played in four
columns:

* (a) the portal's own bodies in memory, by a clock that is set; all of it is in every test run
* (b) on embedded clusters over HTTP
* (c) on three real API servers, the portal dispatching and admitting
* (d) on three real control planes, Kueue and MultiKueue doing so

`dispatch/recorded/` holds what (d) wrote, field by field; the other columns have to reach the same.
Where the portal means to differ, the story says so with both outcomes and the reason. In every
column an observer of its own reads the whole history and judges it: at most one worker has the job
under one attempt, only a nominated worker is chosen, no check is failed under an eviction, and
nothing that dispatch made is left on a worker once the manager's job is deleted.

`make test` plays (a) whole and a fixed short set of (b), (c) and (d), marked `q` below: those
passed in each run. `make stories` plays all of them and keeps the day on which a story last passed
in `results.json`; that day stands below, and *not run* where the story was changed since or never
passed. `=` stands for equal outcomes, `≠` for a difference on purpose, `-` for a column that does
not play the story. This file is written by
`UPDATE_GOLDEN=1 pytest tests/stories/test_dispatch_form.py`; what Kueue does is recorded anew with
`UPDATE_GOLDEN=1 pytest tests/stories/test_dispatch_stories.py -k real_kueue`, and then looks that
differ on purpose with `-k by_the_portal`.
"""


def table_text(stories: Sequence[FleetStory]) -> str:
    """The whole file."""
    parts = [_HEAD, f"## The {len(stories)} stories\n", "\n".join(_rows(stories)) + "\n"]
    deviating = [story for story in stories if story.differs]
    parts += ["## Differences on purpose\n", "\n".join(_differences(deviating)) + "\n"]
    missing = [story for story in stories if story.without]
    parts += ["## Columns that do not play a story\n", "\n".join(_without(missing)) + "\n"]
    return "\n".join(parts)


def _rows(stories: Iterable[FleetStory]) -> Iterator[str]:
    yield (
        "| story | "
        + " | ".join(_NAMES[column] for column in COLUMNS)
        + " | of the specification |"
    )
    yield "| --- |" + " --- |" * (len(COLUMNS) + 1)
    for story in stories:
        cells = " | ".join(_cell(story, column) for column in COLUMNS)
        yield f"| {story.text} (`{story.name}`) | {cells} | {', '.join(story.covers)} |"


def _cell(story: FleetStory, column: str) -> str:
    if column in story.without:
        return "-"
    mark = "≠" if story.differs and column != "kueue" else "="
    if column == "memory" or column in story.quick:
        return f"{mark} q"
    day = last_passed(column, story.name, *story.files)
    return f"{mark} {day}" if day else "not run"


def _differences(stories: Iterable[FleetStory]) -> Iterator[str]:
    for story in stories:
        for step in story.steps:
            if step.portal:
                yield f"* `{story.name}`, {step.given}: {step.portal['why']}"
        for each in story.deviations:
            yield f"* `{story.name}`, {each.at}: {each.why}"
        for rule, why in story.breaks.items():
            yield f"* `{story.name}`, Kueue breaks *{rule}*: {why}"


def _without(stories: Iterable[FleetStory]) -> Iterator[str]:
    for story in stories:
        for column, why in story.without.items():
            yield f"* `{story.name}` in {_NAMES[column]}: {why}"
