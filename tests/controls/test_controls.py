"""The list of guards is whole and true to the code; ``python -m tests.controls`` takes them out."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.controls import ROOT, elsewhere, guards, promised

ROWS = list(guards())


def test_no_exception_is_left_over():
    told = Counter(test for row in elsewhere() for test in row.tests)
    assert set(told) <= promised()
    assert [test for test, count in told.items() if count > 1] == []
    assert all(row.reason for row in elsewhere())


def test_each_promise_has_a_guard_or_says_why_not():
    """Where a whole file is promised, one of its tests is enough."""
    tried = {test.partition("[")[0] for row in ROWS for test in row.tests}
    told = {test for row in elsewhere() for test in row.tests}
    files = {test.partition("::")[0] for test in tried}
    assert sorted(promised() - told - tried - files) == []


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.file}:{row.tests[0]}")
def test_guard_stands_once_where_its_row_says(row):
    for file, find, replace in row.places():
        text = (ROOT / file).read_text()
        assert text.count(find) == 1, f"{file} has it {text.count(find)} times"
        assert find != replace
    for test in row.tests:
        path, _, name = test.partition("[")[0].partition("::")
        assert f"def {name.rpartition('::')[2]}(" in (ROOT / path).read_text()
