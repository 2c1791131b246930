"""Components escape what they are given; the loader leaves out what nobody sees."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.template import Context, Engine, engines
from django.utils import timezone

from portal.web.layout import Loader
from portal.web.tags import with_times
from tests.web.normal_form import normal_form


def rendered(source: str, **context: object) -> str:
    return engines["django"].from_string(source).template.render(Context(context))


@pytest.mark.parametrize(
    ("source", "want"),
    [
        pytest.param(
            '{% card "Drift" id="drift" %}<p>a</p>{% endcard %}',
            '<section class="card flush" id="drift"><header><h2>Drift</h2></header>'
            "<p>a</p></section>",
            id="card",
        ),
        pytest.param(
            "{% card name aside=name %}{% endcard %}",
            '<section class="card flush"><header><h2>&lt;b&gt;</h2>'
            '<p class="muted small">&lt;b&gt;</p></header></section>',
            id="card with a text beside its title",
        ),
        pytest.param(
            '{% card "A" text=name %}{% endcard %}',
            '<section class="card flush"><header><div class="tight"><h2>A</h2>'
            '<p class="muted small">&lt;b&gt;</p></div></header></section>',
            id="card with a text below its title",
        ),
        pytest.param(
            '{% table "Job|#GPUs" %}<tbody></tbody>{% endtable %}',
            '<div class="scroll"><table class="cards"><thead><tr><th scope="col">Job</th>'
            '<th scope="col" class="num">GPUs</th></tr></thead><tbody></tbody></table></div>',
            id="table",
        ),
        pytest.param(
            '{% table name "" %}{% endtable %}',
            '<div class="scroll"><table><thead><tr><th scope="col">&lt;b&gt;</th></tr></thead>'
            "</table></div>",
            id="table without a style",
        ),
        pytest.param(
            '{% fact "Kind" name %}', "<div><dt>Kind</dt><dd>&lt;b&gt;</dd></div>", id="fact"
        ),
        pytest.param(
            '{% sample "lent" name %}',
            '<li><svg aria-hidden="true"><rect class="v-lent" width="18" height="11"/></svg>'
            "&lt;b&gt;</li>",
            id="sample",
        ),
        pytest.param('{{ "lost"|tone:"cluster" }}', "trouble", id="tone of a state"),
        pytest.param('{{ "else"|tone:"cluster" }}', "busy", id="tone of any other state"),
        pytest.param('{{ "else"|tone:"job" }}', "", id="no tone"),
    ],
)
def test_component_gives(source: str, want: str):
    assert rendered(source, name="<b>") == want


def test_a_table_sorts_by_the_columns_that_have_a_key(rf):
    head = rendered(
        '{% table "Job|#GPUs|Cost|Team" sorts="|gpus|cost" at="jobs" %}{% endtable %}',
        request=rf.get("/", {"days": "7", "sort": "-gpus"}),
        sort="-gpus",
    )
    assert head == (
        '<div class="scroll"><table class="cards"><thead><tr><th scope="col">Job</th>'
        '<th scope="col" class="num" aria-sort="descending">'
        '<a href="?days=7&amp;sort=gpus#jobs">GPUs</a></th>'
        '<th scope="col"><a href="?days=7&amp;sort=cost#jobs">Cost</a></th>'
        '<th scope="col">Team</th></tr></thead></table></div>'
    )


def test_chart_has_its_figure_its_words_and_what_is_without_scripts():
    chart = rendered(
        '{% chart "heat" figure size=rows|chart_size:2 instead="see there" %}'
        " A {{ name }} {% endchart %}",
        figure={"data": "</script>"},
        rows=[1, 2, 3],
        name='"b"',
    )

    assert 'data-chart="heat-figure"' in chart and 'class="chart tall"' in chart
    assert 'aria-label="A &quot;b&quot;"' in chart
    assert chart.count("</script>") == 1
    assert "The chart needs scripts; see there." in chart


SOURCE = """
<div
  class="row"
>
  <p>
    one
    <b>two</b>
  </p>
  {% if a %}
    <td {% if a > 1 %}class="x"{% endif %}>
      three {% if a %}
        four
      {% endif %}
    </td>
  {% endif %}
</div>
"""


def test_loader_leaves_out_white_space_that_nobody_sees(tmp_path: Path):
    (tmp_path / "a.html").write_text(SOURCE)
    engine = Engine(dirs=[tmp_path])
    loader = Loader(engine)
    text = loader.get_contents(next(iter(loader.get_template_sources("a.html"))))

    assert text == (
        '<div class="row" ><p>one <b>two</b></p>{% if a %}'
        '<td {% if a > 1 %}class="x"{% endif %}>three {% if a %}four {% endif %}</td>'
        "{% endif %}</div>"
    )
    as_written = Engine().from_string(SOURCE).render(Context({"a": 2}))
    as_read = Engine().from_string(text).render(Context({"a": 2}))
    assert normal_form(as_read) == normal_form(as_written)


def test_loader_keeps_lines_for_who_debugs(tmp_path: Path):
    (tmp_path / "a.html").write_text(SOURCE)
    loader = Loader(Engine(dirs=[tmp_path], debug=True))

    assert loader.get_contents(next(iter(loader.get_template_sources("a.html")))) == SOURCE


def test_times_in_a_sentence_stand_as_people_read_them():
    words = "<b> holds from 2026-03-01T01:00:00Z, not from 2026-99-99T99:99:99Z."
    with timezone.override("Europe/Berlin"):
        told = with_times(words)
    assert told.startswith("&lt;b&gt; holds from <time ")
    assert ">2026-03-01 02:00</time>, not from 2026-99-99T99:99:99Z." in told
