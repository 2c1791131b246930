"""The normal form tells apart what looks different, and nothing else."""

from __future__ import annotations

import pytest

from tests.web.normal_form import normal_form


@pytest.mark.parametrize(
    ("html", "other"),
    [
        pytest.param("<p>a <b>b</b></p>", "<p>\n  a\n  <b>b</b>\n</p>", id="one space is another"),
        pytest.param("<p>a</p><p>b</p>", "<p>a</p>\n\n<p>b</p>", id="between blocks"),
        pytest.param("<p>a<br>b</p>", "<p>a\n<br>\nb</p>", id="beside a line break"),
        pytest.param("<p>a <b> b</b></p>", "<p>a <b>b</b></p>", id="the second of two"),
        pytest.param("<p>a <span> </span> b</p>", "<p>a <span></span>b</p>", id="of three"),
        pytest.param("<p><b> a</b></p>", "<p><b>a</b></p>", id="at the begin of a line"),
        pytest.param("<p><b>a </b></p>", "<p><b>a</b></p>", id="at the end of a line"),
        pytest.param(
            '<p class="row"><a>a</a><a>b</a></p>',
            '<p class="row"> <a>a</a> <a>b</a> </p>',
            id="between the children of a flex box",
        ),
        pytest.param(
            '<p>a <span class="tag">b</span></p>',
            '<p>a <span class="tag"> b </span></p>',
            id="at the edges of a box in the line",
        ),
        pytest.param('<i id="a" class="b c">', '<i class="c  b" id="a">', id="order of attributes"),
    ],
)
def test_same_looks_have_the_same_form(html: str, other: str):
    assert normal_form(closed(html)) == normal_form(closed(other))


@pytest.mark.parametrize(
    ("html", "other"),
    [
        pytest.param("<p><a>a</a><a>b</a></p>", "<p><a>a</a> <a>b</a></p>", id="between links"),
        pytest.param("<p>a<b>b</b></p>", "<p>a <b>b</b></p>", id="before an inline element"),
        pytest.param("<p><b>a</b>.</p>", "<p><b>a</b> .</p>", id="after an inline element"),
        pytest.param("<p><b>a </b>b</p>", "<p><b>a</b>b</p>", id="within an inline element"),
        pytest.param("<td><input><input></td>", "<td><input> <input></td>", id="between inputs"),
        pytest.param("<pre>a b</pre>", "<pre>a  b</pre>", id="as it is written"),
        pytest.param("<p>a</p>", "<p hidden>a</p>", id="an attribute"),
        pytest.param("<p>a&lt;b&gt;</p>", "<p>a<b></b></p>", id="a sign that is escaped"),
    ],
)
def test_other_looks_have_another_form(html: str, other: str):
    assert normal_form(closed(html)) != normal_form(closed(other))


def test_an_element_that_is_not_closed_is_told():
    with pytest.raises(AssertionError, match="<b> is not closed"):
        normal_form("<p>a</p><b>")
    with pytest.raises(AssertionError, match="closes <b>"):
        normal_form("<p><b></p>")


def closed(html: str) -> str:
    return html + "</i>" if html.startswith("<i ") else html
