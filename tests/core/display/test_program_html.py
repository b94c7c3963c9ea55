"""Programs and reports as HTML: the printed text with labels of axes and folded blocks."""

import re
from html.parser import HTMLParser

import pytest

import shardir
from shardir.display.axis_colors import DARK_BACKGROUNDS, LIGHT_BACKGROUNDS, NUM_COLORS
from shardir.display.html_elements import (
    Html,
    join,
    label,
    output,
    table,
    tag,
)
from shardir.display.program_html import MAX_HTML_LINES, program_html, report_html

PROGRAM = """\
mesh @mesh = [data=4, model=2]

func @f(
  %x: f32[64@(data, model:(1)1)?, 8@-] replicated(model),
  %"<b>": f32[8],
) -> (f32[64, 8] unreduced(model), f32[8]) {
  %s = all-gather(%x, dims=[], axes=[data, model]) : f32[64, 8]
  %i, %y = while(%x) : i32[], f32[64] {
    (%k: i32[], %z: f32[64@data]) =>
    %c = constant(value=true) : bool[]
    yield %c
  } {
    (%k2: i32[], %z2: f32[64]) =>
    yield %k2, %z2
  }
  return %x, %"<b>"
}
"""


class Reader(HTMLParser):
    """Collects the text, and checks that elements are nested correctly."""

    def __init__(self, omitted: str = "sd-n") -> None:
        super().__init__()
        self.text, self.open, self.omitted = "", [("", "")], omitted
        self.count: dict[str, int] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.count[tag] = self.count.get(tag, 0) + 1
        if tag == "br":
            self.text += "\n"
            return
        if tag in ("div", "details", "summary") and not self.text.endswith("\n"):
            self.text += "\n"
        self.open.append((tag, dict(attrs).get("class") or ""))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        tag, kind = self.open[-1]
        if tag != "style" and kind != self.omitted:
            self.text += data


def read(html: str) -> Reader:
    reader = Reader()
    reader.feed(html)
    reader.close()
    assert reader.open == [("", "")]
    return reader


def test_the_text_of_the_output_is_the_program() -> None:
    found = read(program_html(PROGRAM))
    assert found.text.strip() == PROGRAM.strip()
    assert found.count["details"] == 3


def test_a_program_with_locations_has_them_beside_its_text() -> None:
    line = '  %y = sin(%x) : f32[2] loc("/home/me/a.py":3:5) why("gradient of %x")'
    html = program_html(f"func @f(\n  %x: f32[2],\n) -> (f32[2]) {{\n{line}\n  return %y\n}}\n")
    assert read(html).text.strip().split("\n")[3] == "  %y = sin(%x) : f32[2]"
    assert '<span class="sd-n" title="/home/me/a.py:3">  a.py:3</span>' in html
    assert '<span class="sd-n">  gradient of %x</span>' in html


def test_axes_have_labels_in_the_colors_of_their_mesh() -> None:
    html = program_html(PROGRAM)
    assert '64@(<span class="sd-c sd-c0">data</span>, ' in html
    assert '<span class="sd-c sd-c1">model:(1)1</span>)?' in html
    assert 'replicated(<span class="sd-c sd-c1">model</span>)' in html
    assert 'unreduced(<span class="sd-c sd-c1">model</span>)' in html
    assert (
        'axes=[<span class="sd-c sd-c0">data</span>, <span class="sd-c sd-c1">model</span>]' in html
    )
    assert '[<span class="sd-c sd-c0">data</span>=4, ' in html


def test_axes_of_a_function_have_labels_without_its_mesh() -> None:
    (function,) = shardir.parse(
        "mesh @m = [x=2]\n\nfunc @f(%a: f32[4@x]) -> (f32[4]) {\n  return %a\n}\n"
    ).functions
    assert '<span class="sd-c sd-c0">x:(1)2</span>' in function._repr_html_()


def test_names_of_the_user_are_escaped() -> None:
    html = program_html(PROGRAM)
    assert "<b>" not in html
    assert '%"&lt;b&gt;"' in html


def test_an_output_needs_nothing_else() -> None:
    html = program_html(PROGRAM)
    assert not re.search(r"<script|<link|url\(|https?:|@import", html)
    assert html.startswith('<div class="sd"><style>.sd{')
    assert "prefers-color-scheme:dark" in html


def test_a_long_program_lacks_its_middle() -> None:
    text = "\n".join(f"line {number}" for number in range(5000))
    found = read(program_html(text)).text.strip().split("\n")
    assert len(found) == MAX_HTML_LINES + 1
    assert found[500] == "// ... 4,000 lines omitted; print(x) shows all ..."


def test_a_long_block_is_folded() -> None:
    body = "".join(f"    %{number} = sin(%x) : f32[2]\n" for number in range(50))
    text = f"func @f() -> () {{\n  loop() {{\n{body}    yield\n  }}\n  return\n}}\n"
    html = program_html(text)
    assert html.count("<details open=") == 1
    assert html.count("<details>") == 1


def test_a_block_without_its_end_does_not_fail() -> None:
    assert read(program_html("func @f() -> () {\n  %x = loop() {\n")).text.strip()


def test_objects_of_the_ir_have_html() -> None:
    module = shardir.parse(
        "mesh @mesh = [data=4]\n\nfunc @f(\n  %x: f32[8@data],\n) -> (f32[8]) {\n"
        "  %y = sin(%x) : f32[8]\n  return %y\n}\n"
    )
    body = module.main.body
    for each in (module, module.main, body, body.ops[0], body.params[0]):
        assert read(each._repr_html_()).text.strip() == str(each).strip()


def test_a_report_has_labels_of_axes() -> None:
    html = report_html("%x: f32[64@model, 8]\n  f32[8@data] & more")
    assert read(html).text.lstrip() == "%x: f32[64@model, 8]\n  f32[8@data] & more\n"
    assert '<span class="sd-c sd-c0">model</span>' in html
    assert '<span class="sd-c sd-c1">data</span>' in html


def test_elements_escape_text_and_attributes() -> None:
    assert tag("p", "a<b", ["&", Html("<i>")], title='"x"', class_=None) == (
        '<p title="&quot;x&quot;">a&lt;b&amp;<i></p>'
    )
    assert join(["<", Html("<br>")]) == "&lt;<br>"
    assert label("d>", 9) == '<span class="sd-c sd-c1">d&gt;</span>'
    assert table(["a", "b"], [["1", "<"]], left=1) == (
        '<table><thead><tr><th>a</th><th class="sd-l">b</th></tr></thead><tbody>'
        '<tr><td>1</td><td class="sd-l">&lt;</td></tr></tbody></table>'
    )
    assert read(output("x")).text.strip() == "x"


def luminance(color: str) -> float:
    """The relative luminance of a color such as `#ffffff` (WCAG 2)."""
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(color: str, other: str) -> float:
    """The contrast of two colors (WCAG 2)."""
    high, low = sorted((luminance(color), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize(
    ("colors", "text"), [(LIGHT_BACKGROUNDS, "#1b1f24"), (DARK_BACKGROUNDS, "#e6edf3")]
)
def test_labels_have_a_high_contrast(colors: tuple[str, ...], text: str) -> None:
    assert len(colors) == NUM_COLORS
    for color in colors:
        assert contrast(color, text) >= 5.5
