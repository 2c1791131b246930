"""Files to a browser or client: finished ones, and rows as they are read.

A finished file is resumable, with its type, name and digest. One byte range at a time (RFC 9110,
section 14): that is what resuming a download asks for. A request for several ranges gets the whole
file, as the standard allows.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, Any

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.utils.http import content_disposition_header

from budgets.exports import defused
from budgets.models import Export
from budgets.services.exports.runs import spool_path

BLOCK = 256 * 1024
RANGE = re.compile(r"bytes=(\d{0,19})-(\d{0,19})", re.ASCII)


def send_file(request: HttpRequest, export: Export) -> HttpResponseBase:
    """Answer with its file, a part of it, or 304 and 416 where these are due.

    Args:
        request: Its Range, If-Range and If-None-Match decide.
        export: A ready one; its file never changes under one digest.

    Raises:
        Http404: The file is not there any more.
    """
    path, quoted = spool_path(export), f'"{export.sha256}"'
    if quoted in _tags(request.headers.get("If-None-Match", "")):
        return _dressed(HttpResponse(status=304), quoted)
    try:
        file = path.open("rb")
    except OSError as error:
        raise Http404 from error
    size = path.stat().st_size
    wanted = _range(request, quoted, size)
    if wanted is not None and wanted[0] > wanted[1]:
        file.close()
        refused = HttpResponse(status=416)
        refused["Content-Range"] = f"bytes */{size}"
        return _dressed(refused, quoted)
    first, last = wanted or (0, size - 1)
    length = last - first + 1
    answer: HttpResponseBase
    if request.method == "HEAD":
        file.close()
        answer = HttpResponse(content_type=export.content_type)
    else:
        answer = StreamingHttpResponse(
            _blocks(file, first, length), content_type=export.content_type
        )
    if wanted is not None:
        answer.status_code = 206
        answer["Content-Range"] = f"bytes {first}-{last}/{size}"
    answer["Content-Length"] = str(length)
    answer["Content-Disposition"] = (
        content_disposition_header(True, export.file_name) or "attachment"
    )
    answer["X-Content-Type-Options"] = "nosniff"
    return _dressed(answer, quoted)


def _dressed(answer: HttpResponseBase, quoted: str) -> HttpResponseBase:
    answer["ETag"] = quoted
    answer["Accept-Ranges"] = "bytes"
    answer["Cache-Control"] = "private, no-store"
    return answer


def _tags(header: str) -> list[str]:
    return [tag.strip().removeprefix("W/") for tag in header.split(",")]


def _range(request: HttpRequest, quoted: str, size: int) -> tuple[int, int] | None:
    """(first, last) byte; first > last where it cannot be met; None: the whole file."""
    match = RANGE.fullmatch(request.headers.get("Range", "").strip())
    if match is None or not (match[1] or match[2]):
        return None
    if request.headers.get("If-Range", quoted).strip() != quoted:
        return None
    if not match[1]:
        length = min(int(match[2]), size)
        return (size - length, size - 1) if length else (1, 0)
    first = int(match[1])
    last = min(int(match[2]), size - 1) if match[2] else size - 1
    if match[2] and int(match[2]) < first:
        return None  # no valid range at all
    return (first, last) if first < size else (1, 0)


def _blocks(file: IO[bytes], first: int, length: int) -> Iterator[bytes]:
    with file:
        file.seek(first)
        while length > 0:
            block = file.read(min(BLOCK, length))
            if not block:
                return
            length -= len(block)
            yield block


class _Echo:
    """A file that hands back what is written to it."""

    def write(self, text: str) -> str:
        return text


def csv_answer(name: str, rows: Iterable[Sequence[str]]) -> StreamingHttpResponse:
    """Stream rows of texts, the header first, as a file to download."""
    writer = csv.writer(_Echo())
    lines = (writer.writerow([defused(text) for text in row]) for row in rows)
    return _streamed(name, lines, "text/csv; charset=utf-8")


def documents_answer(
    name: str, documents: Iterable[Mapping[str, Any]], *, columns: Sequence[str], form: str
) -> StreamingHttpResponse:
    """Stream documents of these keys: ``csv``, or ``jsonl`` with one as JSON on each line."""
    if form == "jsonl":
        lines = (f"{json.dumps(row, ensure_ascii=False)}\n" for row in documents)
        return _streamed(f"{name}.jsonl", lines, "application/x-ndjson")

    def rows() -> Iterator[Sequence[str]]:
        yield columns
        for row in documents:
            yield [_cell(row[column]) for column in columns]

    return csv_answer(f"{name}.csv", rows())


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return json.dumps(value, sort_keys=True) if isinstance(value, dict) else str(value)


def _streamed(name: str, lines: Iterable[str], content_type: str) -> StreamingHttpResponse:
    answer = StreamingHttpResponse(lines, content_type=content_type)
    answer["Content-Disposition"] = f'attachment; filename="{name}"'
    return answer
