"""CSV of what is on the screen."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence

from django.http import StreamingHttpResponse

from budgets.exports import defused


class _Echo:
    """A file that hands back what is written to it."""

    def write(self, text: str) -> str:
        return text


def csv_answer(name: str, rows: Iterable[Sequence[str]]) -> StreamingHttpResponse:
    """Stream rows of texts, the header first, as a file to download."""
    writer = csv.writer(_Echo())

    def lines() -> Iterator[str]:
        for row in rows:
            yield writer.writerow([defused(text) for text in row])

    answer = StreamingHttpResponse(lines(), content_type="text/csv; charset=utf-8")
    answer["Content-Disposition"] = f'attachment; filename="{name}"'
    return answer
