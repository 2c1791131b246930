"""A wrong total is found, wherever it stands, and told with its column and both figures."""

from __future__ import annotations

import pytest

from tests.web.figures import tables_of
from tests.web.normal_form import parsed


def row(text: str) -> str:
    """A name and cells: ``5,400 s`` are hours with their seconds on hover."""
    name, *texts = text.split("|")
    wide = ' colspan="2"' if name == "Both" else ""
    hours = '<span title="{} GPU-seconds">some</span>'
    cells = (hours.format(t.removesuffix(" s")) if t.endswith(" s") else t for t in texts)
    return f'<tr><th scope="row"{wide}>{name}</th>' + "".join(f"<td>{c}</td>" for c in cells)


def table(headings: str, *rows: str, foot: str = "") -> str:
    parts = {
        "thead": "".join(f"<th>{words}</th>" for words in headings.split("|")),
        "tbody": "</tr>".join([*map(row, rows), ""]),
        "tfoot": f"{row(foot)}</tr>" if foot else "",
    }
    parts["thead"] = f"<tr>{parts['thead']}</tr>"
    inside = "".join(f"<{tag}>{text}</{tag}>" for tag, text in parts.items())
    return f"<table>{inside}</table>"


def off(column: str, name: str, says: str, come_to: str) -> list[str]:
    return [f"column {column!r} of {name!r} says {says}, and its parts come to {come_to}"]


@pytest.mark.parametrize(
    ("html", "want"),
    [
        pytest.param(
            table("Who|Cost", "a|1.10 EUR", "b|2.05 EUR", foot="Total|3.15 EUR"),
            [],
            id="money to the cent",
        ),
        pytest.param(
            table("Who|Cost", "a|1.10 EUR", "b|2.05 EUR", foot="Total|3.16 EUR"),
            off("Cost", "Total", "3.16 EUR", "3.15 EUR"),
            id="a cent too many",
        ),
        pytest.param(
            table("Who|Cost", "a|1.00 EUR", "b|2.00 USD", foot="Total|3.00 EUR"),
            off("Cost", "Total", "3.00 EUR", "1.00 EUR"),
            id="another currency is not added",
        ),
        pytest.param(
            table("Who|Cost", "a|1.00 EUR", "Together|2.00 EUR"),
            off("Cost", "Together", "2.00 EUR", "1.00 EUR"),
            id="a total among the rows",
        ),
        pytest.param(
            table("Who|Hours", "a|5,400 s", "b|180 s", foot="Total|5,580 s"),
            [],
            id="hours to the second",
        ),
        pytest.param(
            table("Who|Hours", "a|5,400 s", foot="Total|5,401 s"),
            off("Hours", "Total", "5,401 GPU-seconds", "5,400 GPU-seconds"),
            id="a second too many",
        ),
        pytest.param(
            table("Who|Hours", "a|1.0", "b|1.0", foot="Total|2.1"),
            [],
            id="rounded ones may be off by what rounding takes",
        ),
        pytest.param(
            table("Who|Hours", "a|1.0", "b|1.0", foot="Total|2.2"),
            off("Hours", "Total", "2.2", "2.0"),
            id="and by no more",
        ),
        pytest.param(
            table("Who|Where|Cost", "a|x|−1.00 EUR", foot="Both|1.00 EUR"),
            off("Cost", "Both", "1.00 EUR", "-1.00 EUR"),
            id="a sign, and a cell that is two columns wide",
        ),
        pytest.param(
            table("Who|Cost", "a|1.00 EUR", foot="Total|1.00 EUR or 2"),
            ["column 'Cost' of 'Total': '1.00 EUR or 2' is no figure that can be added up"],
            id="what cannot be read",
        ),
        pytest.param(
            table("Who|This month|Month before|Change", "a|5.00 EUR|3.00 EUR|1.00 EUR"),
            off("Change", "a", "1.00 EUR", "2.00 EUR"),
            id="a column that is made of others",
        ),
        pytest.param(
            table("Flavor|Held|Not held|Capacity", "a|3,600 s|-1,800 s|3,600 s"),
            off("Capacity", "a", "3,600 GPU-seconds", "1,800 GPU-seconds"),
            id="a column that is all before it",
        ),
        pytest.param(
            table("Day|00|01|Day", "Monday|1.0||7,200 s"),
            off("Day", "Monday", "2", "1.0"),
            id="seconds beside rounded hours",
        ),
    ],
)
def test_each_wrong_total_is_found(html: str, want: list[str]):
    (found,) = tables_of(parsed(html))
    assert list(found.faults()) == want
