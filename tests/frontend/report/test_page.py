"""The page of a report in headless Chromium, without a network."""

import re
import time
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from urllib.parse import quote

import pytest

import shardir as sd
from shardir.frontend.report.program_report import ProgramReport
from shardir.frontend.shardings.devices import virtual_devices
from shardir.passes.explain import explain
from shardir.text.definition_locations import find_definition_locations
from shardir.text.parser import parse
from tests.frontend.report.browser import Page, find_browser, open_browser
from tests.frontend.report.programs import (
    deep_text,
    jitted,
    mlp_report,
    profiled_report,
    report_of_text,
)
from tests.passes.explain.programs import CONFLICT, FRAGILE, MLP

pytestmark = pytest.mark.skipif(
    find_browser() is None,
    reason="there is no Chromium; on Debian, install chromium-headless-shell",
)
_QUANTITY = re.compile(r"[\d.]+(?: (?:[KMGTP]iB|[KMGTP]|B|ns|us|ms|s)\b)?")
_PLAIN_INTEGER = re.compile(r"(?<![\w.%@:-])\d+(?![\w.:@])")
_WITH_UNIT = re.compile(r"[\d.]+ (?:[KMGTP]iB|[KMGTP]|B|ns|us|ms|s)\b")
VIEWS = ("stages", "communication", "findings", "schedule", "source")
DETAILS = (
    "view=stages&diff=1",
    "view=communication&row=0",
    "view=stages&fn=mlp&value=%25h",
    "view=source&file=0&line=5",
)
"""Fragments that show more than a view."""
TEXT_OF_PAGE = """\
[...document.querySelectorAll("header, #view, #inspector")].map((e) => e.innerText).join("\\n")
"""
TEXT_BESIDE_LISTINGS = """\
[...document.querySelectorAll("header, #view, #inspector")].map((part) => {
  const nodes = document.createTreeWalker(part, NodeFilter.SHOW_TEXT), words = [];
  while (nodes.nextNode()) {
    const node = nodes.currentNode;
    if (!node.parentElement.closest(".space, .code, td.faint, .grid, .chain, .link, .legend"))
      words.push(node.data);
  }
  return words.join("\\n");
}).join("\\n")
"""
"""The text beside programs, line numbers and the pictures of devices. The paths of axes, which
`explain` prints, have their own test."""
AXE_VIOLATIONS = """\
axe.run(document).then((found) => found.violations.flatMap((each) =>
  each.nodes.map((node) => [each.id, node.html, node.failureSummary])))
"""


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with open_browser() as found:
        yield found


def show(page: Page, report: ProgramReport, folder: Path, fragment: str = "") -> Path:
    """Open a report, and check at the end that it loads nothing else and logs no error."""
    path = report.save(folder / "report.html")
    page.errors.clear()
    page.requests.clear()
    page.open(path, fragment)
    return path


def check(page: Page, path: Path) -> None:
    assert page.errors == []
    assert {url.partition("#")[0] for url in page.requests} <= {path.as_uri(), "about:blank"}


def test_every_view_opens_offline(page: Page, tmp_path: Path) -> None:
    path = show(page, mlp_report(), tmp_path)
    for view in VIEWS:
        page.run(f"location.hash = '#view={view}'")
        page.settle()
        assert page.run("document.getElementById('view').innerText.trim().length") > 40
    check(page, path)


def test_a_click_on_a_value_shows_its_chain(page: Page, tmp_path: Path) -> None:
    path = show(page, mlp_report(), tmp_path)
    page.click(".v", "%h")
    places = find_definition_locations(MLP, "mlp.ir")
    expected = explain(parse(MLP), "%h", places=places)
    (chip, *_), chains = page.texts("#inspector .chain h3"), page.texts("#inspector .chain")
    assert chip == f"{expected.chains[0].axis} shards dimension {expected.chains[0].dim}"
    assert len(chains) == len(expected.chains)
    for text, chain in zip(chains, expected.chains, strict=True):
        assert f"stated by {chain.annotation}" in text
        for link in chain.links:
            assert f"{link.source} -> {link.target}" in text
            assert f"along {link.loop}, round {link.round}" in text
    stages = page.texts("#inspector table a, #inspector table button")
    assert "propagate" in stages
    check(page, path)


def test_names_are_read_as_they_are_written(page: Page, tmp_path: Path) -> None:
    text = """\
mesh @m = ["x y"=2, données=2] devices=[3, 2, 1, 0]

func @"f(x)"(%"a, (\\"b\\"": f32[8@"x y", 8@données], %größe: f32[8, 8]) -> (f32[8, 8], f32[8, 8]) {
  %"c, d", %n = scan(%"a, (\\"b\\"", %größe, carries=2, length=3) : f32[8, 8], f32[8, 8] {
    (%carry: f32[8, 8], %schritt: f32[8, 8]) =>
    %next = add(%schritt, %carry) : f32[8, 8]
    yield %carry, %next
  }
  return %"c, d", %n
}
"""
    path = show(page, report_of_text(text), tmp_path)
    for name in ('%"a, (\\"b\\""', "%größe", '%"c, d"', "%n", "%schritt"):
        page.click(".v", name)
        assert page.texts("#inspector h2")[0] == name
        assert page.texts(".row.selected .v.sel")[0] == name
    page.click(".v", '%"c, d"')
    assert page.texts("#inspector .grid div") == ["3", "2", "1", "0"]
    assert page.texts("#inspector .chain h3 .chip") == ['"x y"', "données"]
    assert "a0" in page.run("document.querySelector('#inspector .chain h3 .chip').className")
    check(page, path)


def numbers_of(page: Page) -> list[str]:
    return page.texts(".num")


def visit(page: Page, report: ProgramReport) -> Iterator[str]:
    """Show every view, collective and value of a report; yield the fragment of each."""
    values = [f"view=schedule&fn={v.function}&value={quote(v.name)}" for v in report.data.values]
    rows = [f"view=communication&row={i}" for i in range(len(report.data.collectives))]
    for fragment in (*(f"view={view}" for view in VIEWS), *rows, *values):
        page.run(f"location.hash = '#{fragment}'")
        page.settle()
        yield fragment


@pytest.mark.parametrize("text", [MLP, CONFLICT, FRAGILE], ids=["mlp", "conflict", "fragile"])
def test_every_number_is_in_the_text(page: Page, tmp_path: Path, text: str) -> None:
    report = report_of_text(text)
    path = show(page, report, tmp_path)
    numbers: list[str] = []
    with_units: set[str] = set()
    integers: set[str] = set()
    for _ in visit(page, report):
        numbers += numbers_of(page)
        integers |= set(_PLAIN_INTEGER.findall(page.run(TEXT_BESIDE_LISTINGS)))
        with_units |= set(_WITH_UNIT.findall(page.run(TEXT_OF_PAGE)))
    assert len(numbers) > 100
    # The sizes of groups of equal rows are those of the page.
    own = [each for each in numbers if not each.startswith("x ")]
    quantities = {found for each in own for found in _QUANTITY.findall(each)}
    assert quantities - set(_QUANTITY.findall(report.to_text())) == set()
    # Quantities with a unit are found wherever a view states them, for example in causes.
    assert with_units
    assert with_units - set(_WITH_UNIT.findall(report.to_text())) == set()
    assert integers
    assert integers - set(re.findall(r"\d+", report.to_text())) == set()
    check(page, path)


def test_the_line_and_the_annotation_of_a_collective_are_three_clicks_away(
    page: Page, tmp_path: Path
) -> None:
    report = mlp_report()
    path = show(page, report, tmp_path)
    page.click("#tabs button", "Communication")
    page.click("tbody tr.pick")
    dearest = max(report.data.collectives, key=lambda row: row.sent * row.executions)
    card = page.texts("#collective")[0]
    assert card.startswith(f"x{dearest.value} = {dearest.kind}")
    for number in dearest.annotations:
        assert str(report.data.annotations[number]) in card
    page.click("#collective h2 button:last-child")
    assert dearest.location is not None
    assert page.texts("tr.chosen .code") == [MLP.splitlines()[dearest.location[1] - 1]]
    check(page, path)


def test_the_keyboard_reaches_everything(page: Page, tmp_path: Path) -> None:
    path = show(page, mlp_report(), tmp_path)
    page.press("/")
    page.run("document.activeElement.value = '%h = '")
    page.run("document.activeElement.dispatchEvent(new Event('input'))")
    page.settle()
    page.press("Escape")
    page.press("j")
    page.press("k")
    page.press("Enter")
    assert page.texts("#inspector h2")[0] == "%h"
    before = page.texts(".stagelist [aria-current=true]")
    page.press("[")
    assert before != page.texts(".stagelist [aria-current=true]")
    page.press("d")
    assert page.texts(".toolbar .on") == ["difference to"]
    page.press("Escape")
    assert page.run("document.getElementById('inspector').hidden")
    page.press("2")
    page.press("j")
    page.press("Enter")
    assert page.run("!!document.getElementById('collective')")
    page.press("?")
    assert page.run("document.getElementById('help').open")
    check(page, path)


def test_the_focus_stays_when_a_view_is_drawn_again(page: Page, tmp_path: Path) -> None:
    path = show(page, mlp_report(), tmp_path)
    page.run("document.getElementById('tab-stages').focus()")
    page.press("ArrowRight")
    assert page.run("document.activeElement.id") == "tab-communication"
    page.press("j")
    page.press("Enter")
    assert page.run("document.activeElement.matches('tr.pick.chosen')")
    check(page, path)


def test_a_print_contains_the_whole_view(page: Page, tmp_path: Path) -> None:
    path = show(page, report_of_text(deep_text(60)), tmp_path, "#all=1")
    page.call("Emulation.setEmulatedMedia", media="print")
    page.run("dispatchEvent(new Event('beforeprint'))")
    rows = page.texts(".row")
    assert rows[-1].endswith("}")
    assert len(rows) > 240
    assert page.run("document.documentElement.scrollHeight") > 20 * len(rows)
    page.call("Emulation.setEmulatedMedia", media="")
    page.run("dispatchEvent(new Event('afterprint'))")
    assert len(page.texts(".row")) < 150
    check(page, path)


def test_a_measured_run_has_a_lane_for_each_thread(page: Page, tmp_path: Path) -> None:
    report = profiled_report()
    run = report.data.run
    assert run is not None
    path = show(page, report, tmp_path, "#view=schedule")
    label = "Lanes of the workers; the table below sums them up"
    height = page.run(f"document.querySelector('canvas[aria-label=\"{label}\"]').offsetHeight")
    assert height == 24 + 6 + 34 * len(run.lanes)
    rows = page.texts("table[aria-label='Threads of the measured run'] tbody td:first-child")
    assert rows == list(run.lanes)
    quantities = {found for each in numbers_of(page) for found in _QUANTITY.findall(each)}
    assert quantities - set(_QUANTITY.findall(report.to_text())) == set()
    # A click in the middle of the longest task selects its value.
    longest = max(run.tasks, key=lambda task: task.duration)
    share = (longest.start + longest.duration / 2) / run.total
    page.run(
        f"""(() => {{
          const canvas = document.querySelector('canvas'), box = canvas.getBoundingClientRect();
          const x = box.left + 84 + {share} * (box.width - 84);
          const y = box.top + 24 + 34 * {longest.lane} + 17;
          canvas.dispatchEvent(new MouseEvent("click", {{clientX: x, clientY: y}}));
        }})()"""
    )
    page.settle()
    value = run.activities[longest.activity].name.partition(" ")[0]
    assert page.run("new URLSearchParams(location.hash.slice(1)).get('value')") == value
    check(page, path)


@pytest.mark.parametrize(
    "dark", [False, pytest.param(True, marks=pytest.mark.long)], ids=["light", "dark"]
)
def test_pages_are_accessible(page: Page, tmp_path: Path, dark: bool) -> None:
    axe = pytest.importorskip("axe_core_python", reason="axe-core-python is not installed")
    script = files(axe).joinpath("axe.min.js").read_text("utf-8")
    page.resize(1500, 950, dark=dark)
    try:
        for report, fragments in (
            (mlp_report(), (*(f"view={view}" for view in VIEWS), *DETAILS)),
            (profiled_report(), ("view=schedule",)),
        ):
            path = show(page, report, tmp_path)
            page.run(f"{script}; 1")
            for fragment in fragments:
                page.run(f"location.hash = '#{fragment}'")
                page.settle()
                assert page.run(AXE_VIOLATIONS) == [], fragment
            check(page, path)
    finally:
        page.resize(1500, 950)


def test_notebooks_show_the_page(page: Page, tmp_path: Path) -> None:
    report = mlp_report()
    path = tmp_path / "notebook.html"
    path.write_text(f"<!doctype html><title>notebook</title>{report._repr_html_()}", "utf-8")
    page.errors.clear()
    page.call("Page.navigate", url=path.as_uri())
    inside = "document.querySelector('iframe').contentDocument"
    page.wait(f"document.querySelector('iframe') && {inside}.body?.dataset.ready === '1'")
    page.run(f"[...{inside}.querySelectorAll('#tabs button')].at(-1).click()")
    page.wait(f"{inside}.querySelector('table.source')")
    background = f"getComputedStyle({inside}.body).backgroundColor"
    assert page.run(background) == "rgb(255, 255, 255)"
    page.run("document.body.dataset.jpThemeLight = 'false'")
    page.wait(f"{background} === 'rgb(20, 23, 28)'")
    page.run("document.body.dataset.jpThemeLight = 'true'")
    page.wait(f"{background} === 'rgb(255, 255, 255)'")
    assert page.errors == []


def test_a_plan_has_a_view(page: Page, tmp_path: Path) -> None:
    mesh = sd.make_mesh((4,), ("model",), devices=virtual_devices(4))
    w = sd.ShapeDtypeStruct((64, 64), "float32")
    report = sd.plan(jitted, (w, w), mesh, evaluations=4).report()
    assert report.data.planning is not None
    path = show(page, report, tmp_path)
    page.click("#tabs button", "Plan")
    for table in report.data.planning.tables:
        cells = page.texts(f"table[aria-label='{table.head[0]}'] tbody td")
        assert cells == [cell for row in table.rows for cell in row]
    integers = set(_PLAIN_INTEGER.findall(page.run(TEXT_BESIDE_LISTINGS)))
    assert integers - set(re.findall(r"\d+", report.to_text())) == set()
    check(page, path)


def test_repeated_layers_are_folded(page: Page, tmp_path: Path) -> None:
    path = show(page, report_of_text(deep_text(odd_layer=5)), tmp_path, "#stage=0")
    folds = page.texts(".row.fold")
    assert any("these 4 lines x 11" in text and "except 1" in text for text in folds)
    assert "one that differs" in "".join(folds)
    rows = len(page.texts(".row"))
    page.press("f")
    assert len(page.texts(".row")) > rows
    check(page, path)


def test_the_difference_has_the_counted_lines(page: Page, tmp_path: Path) -> None:
    report = mlp_report()
    number = next(i for i, stage in enumerate(report.data.stages) if stage.name == "reshard")
    stage = report.data.stages[number]
    path = show(page, report, tmp_path, f"#stage={number}&diff=1")
    assert len(page.texts(".row.add")) == stage.added + stage.changed
    assert len(page.texts(".row.del")) == stage.removed + stage.changed
    check(page, path)


def test_text_of_the_program_is_only_text(page: Page, tmp_path: Path) -> None:
    text = 'func @f(%x: f32[4]) -> (f32[4]) {\n  %"<img src=x onerror=boom()>" = sin(%x) : f32[4]\n'
    text += '  return %"<img src=x onerror=boom()>"\n}\n'
    path = show(page, report_of_text(text, "</script><script>boom()</script>.ir"), tmp_path)
    page.run("location.hash = '#view=source'")
    page.settle()
    assert page.run("document.querySelectorAll('img').length") == 0
    check(page, path)


def test_large_programs_stay_fast(page: Page, tmp_path: Path) -> None:
    path = show(page, report_of_text(deep_text(300)), tmp_path, "#all=1")
    assert len(page.texts(".row")) < 150
    begin = time.monotonic()
    page.run("document.querySelector('.list').scrollTop = 9000")
    page.settle()
    assert time.monotonic() - begin < 5
    check(page, path)
