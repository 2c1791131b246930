"""Explanations and answers as lines for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from clusters.explaining.answers import JobOutcome, WhatIfAnswer
from clusters.explaining.findings import Explained
from clusters.forecasting import StartForecast


def explanation_lines(detail: Explained) -> Iterator[str]:
    """The sentence, then the evidence, indented."""
    yield detail.sentence
    if detail.position:
        of_how_many = f" of {detail.waiting}" if detail.waiting else ""
        yield f"  place in its queue: {detail.position}{of_how_many}"
    yield from (f"  {item.flavor}: {item.words}" for item in detail.flavors)
    for check in detail.checks:
        told = f": {check.message}" if check.message else ""
        yield f"  check {check.name} is {check.state}{told}"
    if detail.holders:
        yield "  held by"
        rows = [
            (
                item.name,
                item.amounts,
                f"since {item.since:%Y-%m-%d %H:%M} UTC" if item.since is not None else "",
                item.protection,
            )
            for item in detail.holders
        ]
        yield from (f"    {line}" for line in _columns(rows))
        if detail.holders_more:
            yield f"    and {detail.holders_more} more"
    if detail.remedies:
        yield "  what would change it"
        yield from (f"    {text}" for text in detail.remedies)
    if detail.message:
        yield f"  in the scheduler's words: {detail.reason}: {detail.message}"


def forecast_line(forecast: StartForecast) -> str:
    """When it is likely to start, in UTC."""
    if forecast.earliest is None or forecast.latest is None:
        return f"The portal cannot say when it starts: {forecast.why_unknown}."
    runs = f", from {forecast.runs} earlier runs" if forecast.runs else ""
    return (
        f"Likely to start between {forecast.earliest:%Y-%m-%d %H:%M} and "
        f"{forecast.latest:%Y-%m-%d %H:%M} UTC; {round(forecast.coverage * 100)} % sure{runs}."
    )


def answer_lines(answer: WhatIfAnswer) -> Iterator[str]:
    """The headline, then who starts, stops and gains or loses reach, indented."""
    yield answer.headline
    for title, rows, count in (
        ("start", answer.started, answer.started_count),
        ("are preempted", answer.preempted, answer.preempted_count),
        ("are stopped and queue again", answer.stopped, answer.stopped_count),
        ("can start later, once others end", answer.opened, answer.opened_count),
        ("can no longer start: no domain can take them", answer.barred, answer.barred_count),
    ):
        if rows:
            yield f"  {title}"
            yield from (f"    {line}" for line in _outcomes(rows))
            if count > len(rows):
                yield f"    {count} in all"
    if answer.capacity:
        yield "  reach at most"
    for change in answer.capacity:
        yield f"    {change.name} {'loses' if change.is_loss else 'gains'} {change.amounts}"
    if not answer.is_settled:
        yield "  the calculation was cut off early, so more may follow"
    yield f"  worked out in {answer.took_ms} ms"


def _outcomes(rows: Iterable[JobOutcome]) -> Iterator[str]:
    return _columns([(item.name, item.amounts, item.why) for item in rows])


def _columns(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True) if width)
        yield "  ".join(cells).rstrip()
