"""The demo's ten minutes, played in a browser: ``make demo`` as it starts, and its own people.

Whoever plays begins each scene on the page "Try this" and follows a step of it. The short form
goes through what the seed told; the whole one waits for what jobs and clusters do, decides, and
looks at each page on a phone besides. Pictures are kept in ``artifacts/screens/after``.

Nothing was used yet when a month begins, so nothing can have reached a cap or been lost: on its
first two days a step that is not there is left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from playwright.sync_api import Browser, Locator, Page, expect

from tests.browser import axe
from tests.browser.boards import Lines, lines_of, sheet
from tests.browser.conftest import ROOT, Watched, visiting
from tests.browser.windows import settle
from tests.demos import Demo, copied, running
from tests.metrics.scraper import TOKEN, Scraper, program
from tests.waiting import eventually

SCREENS = ROOT / "artifacts" / "screens" / "after"
AMOUNT = re.compile(r"(−?)([\d,]+\.\d\d) EUR")
# Steps of the page "Try this", by where they lead.
CLOSED, OPEN = "/billing/months/", "/billing/months/ >> nth=1"
STATEMENT, PRICES, LOST = "/billing/statements/", "/billing/approvals/", "/billing/reconciliation/"
REQUEST, CAP, BUDGET = "/workspaces/acme-research/history/", "/spend/", "/budget/"
WAITING, STOPPED, TEAMS = "/jobs/?", "/jobs/manager/", "/usage/"
ASK, OVERVIEW = "/what-if/", "/"
SCRAPED_S = 15
# Of these the demo may have nothing to tell.
EMPTY = {
    "Objects that are set aside",
    "Time for which an object has not been as wanted",
    "Jobs that no worker has taken yet",
    "Tasks that failed within an hour",
    "Time since the oldest of them ended",
    "Discrepancies that block a close",
    "GPUs for which billing is undecided",
    "Messages that wait or were given up",
}


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    with running(copied(tmp_path_factory.mktemp("demo")), PORTAL_METRICS_TOKEN=TOKEN) as found:
        yield found


class Person:
    """Somebody of the demo at a desk, and with a phone where one is wanted.

    Attributes:
        page: What is on the desk.
    """

    def __init__(
        self, demo: Demo, visit: Callable[..., Watched], login: str, *, has_phone: bool
    ) -> None:
        self.login, self.base = login, demo.address
        self.windows = {"desk": visit()}
        if has_phone:
            self.windows["phone"] = visit(phone=True)
        for watched in self.windows.values():
            watched.sign_in(login, demo.password(login))
        self.page: Page = self.windows["desk"].page

    def has(self, step: str) -> bool:
        """Whether the tour has a step, once it is on the desk; see above for a young month."""
        self.windows["desk"].open("/tour/")
        expect(self.page.get_by_role("heading", name="Try this")).to_be_visible()
        is_there = self._step(step).count() > 0
        assert is_there or datetime.now(UTC).day <= 2, f"{self.login} has no step to {step}"
        return is_there

    def follows(self, step: str) -> Page:
        """Go where a step of the tour leads."""
        self._step(step).click()
        self.page.wait_for_url(lambda url: not url.endswith("/tour/"))
        return self.page

    def _step(self, step: str) -> Locator:
        part, _, nth = step.partition(" >> nth=")
        exactly = "=" if part == OVERVIEW else "*="
        return self.page.locator(f'#steps a[href{exactly}"{part}"]').nth(int(nth or 0))

    def shows(self, name: str) -> None:
        """What is on the desk, and on the phone, can be read; a picture of each is kept."""
        for size, watched in self.windows.items():
            page = watched.page
            if page is not self.page:
                page.goto(self.page.url)
            settle(page)
            watched.check()
            watched.keep(f"{self.login}-{name}", SCREENS / size)
            faults, _ = axe.in_both_schemes(page)
            assert not faults, f"{page.url}, {size}: {faults}"


Cast = dict[str, Person]


@pytest.fixture
def cast(chromium: Browser, demo: Demo, request: pytest.FixtureRequest) -> Iterator[Cast]:
    """The four people of the demo, signed in; with phones for the whole story."""
    has_phone = request.node.get_closest_marker("slow") is not None
    with visiting(chromium, demo.address) as visit:
        yield {
            login: Person(demo, visit, login, has_phone=has_phone)
            for login in ("owner", "admin", "finance", "controller")
        }


def amounts(cells: Locator) -> list[Decimal]:
    """What these cells come to, each."""
    found = [AMOUNT.search(text) for text in cells.all_text_contents()]
    assert found and all(found), cells.all_text_contents()
    return [Decimal(f"{'-' * len(m[1])}{m[2].replace(',', '')}") for m in found if m]


def part(page: Page, title: str) -> Locator:
    """The part of a page under a heading."""
    return page.locator("section", has=page.get_by_role("heading", name=title))


def test_the_story_in_short(cast: Cast):
    for scene in (closed_month, correction, request_waits, preemption, lost_worker, cap):
        scene(cast)


def test_boards_show_what_the_demo_does(chromium: Browser, demo: Demo, tmp_path: Path):
    """Pictures of Grafana's boards, drawn from their JSON with what a real Prometheus scraped."""
    folders = boards, data = tmp_path / "boards", tmp_path / "prometheus"
    for folder in folders:
        folder.mkdir()
    call_command("grafana_boards", boards, stdout=StringIO())
    shown: dict[str, Lines] = {}
    with (
        visiting(chromium, demo.address) as visit,
        Scraper(program("prometheus"), demo.address, data) as scraper,
    ):
        scraped = f"count_over_time(portal_jobs_running[{SCRAPED_S}s]) > {SCRAPED_S / 2}"
        all_answer = "min(portal_cluster_reachable)"
        eventually(lambda: scraper.ask(scraped) and scraper.ask(all_answer) == ["1"])

        def read(query: str) -> list[dict[str, Any]]:
            return scraper.series(query.replace("$workspace", ".+"), seconds=SCRAPED_S)

        for path in boards.iterdir():
            board = json.loads(path.read_text())
            lines = {panel["title"]: lines_of(panel, read) for panel in board["panels"]}
            watched = visit()
            watched.page.set_content(sheet(board, lines))
            expect(watched.page.locator(".panel")).to_have_count(len(board["panels"]))
            settle(watched.page)
            watched.keep(path.stem, SCREENS / "boards")
            shown |= lines
    newest = {
        title: {legend: values[-1][1] for legend, values in lines} for title, lines in shown.items()
    }
    assert {title for title, series in newest.items() if not series} <= EMPTY
    assert newest["Clusters that do not answer"] == {"": 0}
    assert newest["GPUs promised and in use"]["committed h100"] > 0
    whose = {legend.partition(": ")[::2] for legend in newest["Jobs"]}
    assert {state for _, state in whose} == {"waiting", "running"}
    assert all(name for name, _ in whose)


def closed_month(cast: Cast) -> None:
    """Last month is closed: its statements are issued, add up, and are there as PDF."""
    finance = cast["finance"]
    assert finance.has(CLOSED)
    page = finance.follows(CLOSED)
    expect(page.locator(".headline")).to_contain_text("nothing in it changes any more")
    papers = part(page, "Statements")
    states = papers.locator("tbody .tag").all_text_contents()
    assert len(states) >= 2 and set(states) == {"Issued"}
    assert [sum(amounts(papers.locator("tbody td.num")))] == amounts(papers.locator("tfoot .num"))
    finance.shows("month-closed")

    papers.locator("tbody a").first.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Statement")
    (payable,) = set(amounts(page.locator(".big")))
    assert sum(amounts(page.locator("section tfoot .num"))) == payable > 0
    assert sum(amounts(page.locator("tbody td[data-label=Amount]"))) == payable
    link = page.get_by_role("link", name="PDF").get_attribute("href")
    pdf = page.request.get(f"{finance.base}{link}")
    assert pdf.ok and pdf.body().startswith(b"%PDF-")
    finance.shows("statement")


def addresses(links: Locator) -> list[str]:
    return [str(link.get_attribute("href")) for link in links.all()]


def correction(cast: Cast) -> None:
    """This month runs; what was told late is on a line of its own, down to its job."""
    finance = cast["finance"]
    assert finance.has(OPEN)
    page = finance.follows(OPEN)
    expect(page.locator(".headline")).to_contain_text("The month is open")
    expect(page.locator("#accounts")).to_be_visible()
    expect(part(page, "Statements")).to_contain_text("corrected here")
    finance.shows("month-open")
    drafts = part(page, "Statements").locator("tbody a")
    lines = []
    for address in addresses(drafts):
        page.goto(finance.base + address)
        lines += addresses(page.get_by_role("link", name=re.compile("^Correction")))
    assert lines
    for line in lines:
        # Of a job that borrowed, the lender's credit and its funding are lines without jobs.
        page.goto(finance.base + line)
        if page.locator("#jobs").count():
            break
    jobs = page.locator("#jobs")
    expect(jobs).to_be_visible()
    assert (
        sum(amounts(jobs.locator("tbody td.num:last-child")))
        == amounts(jobs.locator("tfoot td:last-child")).pop()
    )
    finance.shows("correction")


def request_waits(cast: Cast) -> None:
    """A request beyond the envelope waits, with what accepting it would do."""
    admin = cast["admin"]
    assert admin.has(REQUEST)
    page = admin.follows(REQUEST)
    expect(page.locator(".headline")).to_contain_text("The foundation model trains until spring")
    expect(page.get_by_text("its envelope allows 56", exact=False).first).to_be_visible()
    expect(page.locator("#consequences #cost")).to_be_visible()
    expect(page.get_by_role("button", name="Accept")).to_be_visible()
    admin.shows("request")


def preemption(cast: Cast) -> None:
    """A job made way for another: when, for whom, by which rule, and what was lost."""
    admin = cast["admin"]
    assert admin.has(STOPPED)
    page = admin.follows(STOPPED)
    row = page.locator("#preemptions tbody tr")
    expect(row.first).to_contain_text("It was preempted: it ran on borrowed GPUs")
    assert Decimal(row.first.locator("td.num").inner_text().replace(",", "")) > 0
    expect(page.locator(".timeline")).to_contain_text("preempted", ignore_case=True)
    admin.shows("preempted")
    page.locator("#preemptions td[data-label=For] a").first.click()
    expect(page.locator("#cost tfoot")).to_be_visible()


def lost_worker(cast: Cast) -> None:
    """A worker answered nobody for some hours; it is back, and finance decides what counts."""
    finance = cast["finance"]
    if not finance.has(LOST):
        return
    page = finance.follows(LOST)
    expect(page.locator(".headline")).to_contain_text("did not watch the cluster")
    facts = page.locator(".pairs").inner_text()
    worker = re.search("Frankfurt|Dublin", facts)
    assert worker and "still going on" not in facts
    expect(page.get_by_role("button", name="Propose to accept it")).to_be_visible()
    finance.shows("lost-worker")
    admin = cast["admin"]
    admin.windows["desk"].open("/clusters/")
    back = admin.page.get_by_role("row", name=re.compile(worker[0]))
    expect(back.first).to_be_visible()
    expect(back.locator(".tag.trouble")).to_have_count(0)


def cap(cast: Cast) -> None:
    """A cap that bites: how full it is, what it does now, and who is told."""
    finance = cast["finance"]
    if not finance.has(CAP):
        return
    page = finance.follows(CAP)
    reached = page.locator("#caps tbody tr", has=page.locator(".tag.trouble")).first
    percent = re.search(r"(\d+) %", reached.inner_text())
    assert percent and int(percent[1]) >= 100

    def holds() -> bool:
        page.reload()
        return "Jobs borrow nothing beyond the committed" in page.locator(".headline").inner_text()

    eventually(holds, seconds=120, why=page.locator("main").inner_text)
    finance.shows("cap")
    finance.windows["desk"].open("/")
    expect(page.locator("#needs")).to_contain_text("Protein folding has used")


@pytest.mark.slow
def test_the_whole_story(cast: Cast):
    for scene in (
        *(tours, overview, closed_month, down_to_the_job, correction, request_waits, preemption),
        *(lost_worker, cap, teams, job_that_waits, asked_before, budget_changes),
        *(request_is_decided, prices_need_two, lost_time_is_settled, cap_is_raised),
    ):
        scene(cast)


def tours(cast: Cast) -> None:
    """Each role has its own page to try, and every step of it leads somewhere."""
    for person in cast.values():
        person.windows["desk"].open("/tour/")
        person.shows("tour")
        links = person.page.locator("#steps a").all()
        assert len(links) >= 3
        for address in [str(link.get_attribute("href")) for link in links]:
            answer = person.page.goto(person.base + address)
            assert answer is not None and answer.status == 200, address
            expect(person.page.get_by_role("heading", level=1)).to_be_visible()


def overview(cast: Cast) -> None:
    """Everything at one glance, each a link."""
    admin = cast["admin"]
    assert admin.has(OVERVIEW)
    page = admin.follows(OVERVIEW)
    expect(page.locator(".glance")).to_contain_text("3 of 3")
    expect(page.locator("#needs")).to_contain_text("waits for your decision")
    admin.shows("overview")
    page = cast["owner"].windows["desk"].open("/")
    expect(page.get_by_role("row", name=re.compile("Research"))).to_be_visible()
    cast["owner"].shows("home")


def down_to_the_job(cast: Cast) -> None:
    """From an issued statement to a line, to a job, to what that job cost."""
    finance = cast["finance"]
    assert finance.has(STATEMENT)
    page = finance.follows(STATEMENT)
    page.locator("tbody th a", has_text="Burst").first.click()
    expect(page.locator("#jobs")).to_be_visible()
    finance.shows("statement-line")
    page.locator("#jobs tbody a").first.click()
    expect(page.locator("#cost tfoot")).to_be_visible()
    expect(page.locator(".timeline li").first).to_be_visible()
    finance.shows("job")


def teams(cast: Cast) -> None:
    """Costs by a label of jobs: they add up to what was charged."""
    owner = cast["owner"]
    assert owner.has(TEAMS)
    page = owner.follows(TEAMS)
    groups = page.locator("#groups")
    assert (
        sum(amounts(groups.locator("tbody td:last-child")))
        == amounts(groups.locator("tfoot td:last-child")).pop()
    )
    owner.shows("teams")


def job_that_waits(cast: Cast) -> None:
    """One of the jobs that arrive here waits, and its page says in a sentence for what."""
    owner = cast["owner"]
    assert owner.has(WAITING)
    page = owner.follows(WAITING)
    address = page.url

    def explained() -> bool:
        page.goto(address)
        first = page.locator("#list tbody th a").first
        if not first.count():
            return False
        page.goto(f"{owner.base}{first.get_attribute('href')}")
        told = page.locator("#state .sentence").inner_text().split(maxsplit=1)
        return page.locator("#why").count() > 0 and len(told) == 2 and len(told[1]) > 20

    eventually(explained, seconds=240, why="no job waits with a reason")
    owner.shows("job-waits")


def asked_before(cast: Cast) -> None:
    """Will my job start? A verdict comes first."""
    owner = cast["owner"]
    assert owner.has(ASK)
    page = owner.follows(ASK)
    page.locator("form.card").first.get_by_role("button").click()
    expect(page.locator("#answer .verdict")).to_be_visible()
    owner.shows("what-if")


def budget_changes(cast: Cast) -> None:
    """Cost, envelope and fleet move while somebody types; once saved, the clusters follow."""
    owner = cast["owner"]
    assert owner.has(BUDGET)
    page = owner.follows(BUDGET)
    page.goto(f"{owner.base}/workspaces/acme-training/budget/")
    bar = page.locator("#consequences #envelope-h100-committed-used")
    before = bar.get_attribute("width")
    page.get_by_label("Committed", exact=True).fill("20")
    expect(page.get_by_text("20 here, 24 now").first).to_be_visible()
    assert bar.get_attribute("width") != before
    owner.shows("budget-form")
    page.get_by_label("Reason", exact=True).fill("Evaluation needs less")
    page.get_by_role("button", name="Save budget").click()
    expect(page.get_by_text("Revision 2 is saved")).to_be_visible()
    clusters = page.get_by_label("State of the clusters").locator("li")
    expect(clusters).to_have_count(3)
    expect(page.get_by_label("State of the clusters").locator("li:not(.good)")).to_have_count(0)
    owner.shows("budget-saved")


def request_is_decided(cast: Cast) -> None:
    """Accepted in part; whoever asked reads it on their first page."""
    admin, owner = cast["admin"], cast["owner"]
    assert admin.has(REQUEST)
    page = admin.follows(REQUEST)
    page.get_by_label("H100 on demand, committed").fill("24")
    page.get_by_label("H100 on demand, burst limit").fill("48")
    page.get_by_label("Comment", exact=True).fill("Half of it until the racks are there")
    page.get_by_role("button", name="Accept").click()
    expect(page.get_by_text("accepted in part")).to_be_visible()
    admin.shows("request-decided")
    page = owner.windows["desk"].open("/")
    expect(page.locator("#needs")).to_contain_text("Half of it until the racks are there")
    owner.shows("request-answered")


def prices_need_two(cast: Cast) -> None:
    """Who proposed dearer prices cannot approve them; somebody else can."""
    finance, controller = cast["finance"], cast["controller"]
    assert finance.has(PRICES) and controller.has(PRICES)
    page = finance.follows(PRICES)
    page.locator("tbody th a").first.click()
    expect(page.get_by_role("button", name="Take it back")).to_be_visible()
    expect(page.get_by_role("button", name="Approve it")).to_have_count(0)
    page = controller.follows(PRICES)
    controller.shows("approvals")
    page.locator("tbody th a").first.click()
    controller.shows("proposal")
    page.get_by_label("Reason").fill("Power costs more, indeed")
    page.get_by_role("button", name="Approve it").click()
    expect(page.locator("main")).to_contain_text("List prices, next quarter is in force from")


def lost_time_is_settled(cast: Cast) -> None:
    """One proposes to accept what is missing, another one accepts it."""
    finance, controller = cast["finance"], cast["controller"]
    if not finance.has(LOST):
        return
    page = finance.follows(LOST)
    page.get_by_label("Reason").fill("The manager knows of every job that ran there")
    page.get_by_role("button", name="Propose to accept it").click()
    expect(page.locator(".pairs")).to_contain_text("The manager knows of every job")
    address = page.url
    page = controller.page
    page.goto(address)
    page.get_by_role("button", name="Accept it").click()
    expect(page.locator(".headline .tag.good")).to_be_visible()
    controller.shows("lost-time-settled")


def cap_is_raised(cast: Cast) -> None:
    """With a higher cap jobs burst again."""
    finance = cast["finance"]
    if not finance.has(CAP):
        return
    page = finance.follows(CAP)
    change = page.locator("#change")
    change.locator("summary").click()
    change.get_by_label("New cap").fill("100000")
    change.get_by_label("Reason").fill("Globex agreed by mail")
    change.get_by_role("button", name="Change cap").click()
    expect(page.get_by_text("The cap is changed")).to_be_visible()
    expect(page.locator("#caps tbody .tag.trouble")).to_have_count(0)
    finance.shows("cap-raised")
