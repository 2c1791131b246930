"""Third-party browser code out of the installed wheels; none of it is kept in the repository.

HTMX comes as an ordinary app file of ``django_htmx``. Plotly's wheel is no Django app, so this
finder offers its one bundle under ``plotly/``. It reads the wheel's files and imports nothing
of it: ``charts.py`` is the only importer.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from django.contrib.staticfiles.finders import BaseFinder
from django.core.files.storage import FileSystemStorage

BUNDLE = "plotly.min.js"
PREFIX = "plotly"


def package_folder() -> Path:
    """Folder of the wheel that holds the browser bundle."""
    return Path(str(distribution("plotly").locate_file("plotly/package_data")))


class PlotlyFinder(BaseFinder):
    """Finds ``plotly/plotly.min.js`` and nothing else."""

    def __init__(self, app_names: Any = None, *args: Any, **kwargs: Any) -> None:
        self.storage = FileSystemStorage(location=str(package_folder()))
        # What collectstatic puts before the path, as for Django's own prefixed folders.
        self.storage.prefix = PREFIX  # type: ignore[attr-defined]  # as FileSystemFinder does
        super().__init__(*args, **kwargs)

    def find(self, path: str, find_all: bool = False, **kwargs: Any) -> Any:
        if path != f"{PREFIX}/{BUNDLE}":
            return []
        found = str(package_folder() / BUNDLE)
        return [found] if find_all else found

    def list(self, ignore_patterns: Any) -> Iterator[tuple[str, FileSystemStorage]]:
        yield BUNDLE, self.storage
