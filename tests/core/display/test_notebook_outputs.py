"""Outputs of notebooks: the texts of tables, and the styles that win over those of JupyterLab."""

import builtins
from pathlib import Path

import pytest

from shardir.display.html_elements import output, table
from shardir.display.text_tables import align_columns
from tests.frontend.report.browser import find_browser, open_browser

JUPYTERLAB_STYLE = """\
:not(.jp-RenderedMarkdown).jp-RenderedHTMLCommon td,
:not(.jp-RenderedMarkdown).jp-RenderedHTMLCommon th {
  text-align: right; padding: 0.5em 0.5em; white-space: normal; border: none;
}
"""


class ZMQInteractiveShell:
    """The class that libraries recognize as the shell of a notebook."""


def test_tables_are_texts_in_notebooks_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(builtins, "get_ipython", ZMQInteractiveShell, raising=False)
    rows = [("%x", "16 B"), ("%long", "漢字"), ("", "1 KiB")]
    assert list(align_columns(rows, ("value", "bytes"))) == [
        "value  bytes",
        "%x     16 B",
        "%long  漢字",
        "       1 KiB",
    ]
    assert list(align_columns([("漢字", "1"), ("ab", "2")])) == ["漢字  1", "ab    2"]
    assert capsys.readouterr().out == ""


def test_no_rows_make_no_table() -> None:
    assert list(align_columns([], ("value",))) == []


@pytest.mark.skipif(
    find_browser() is None,
    reason="there is no Chromium; on Debian, install chromium-headless-shell",
)
def test_texts_in_tables_are_aligned_left_in_jupyterlab(tmp_path: Path) -> None:
    shown = output(table(("time", "operation"), [("1 us", "%y = dot")], left=1))
    page_text = (
        f"<!doctype html><style>{JUPYTERLAB_STYLE}</style>"
        f'<body data-ready="1"><div class="jp-RenderedHTMLCommon">{shown}</div>'
    )
    (tmp_path / "notebook.html").write_text(page_text, "utf-8")
    with open_browser() as page:
        page.open(tmp_path / "notebook.html")
        styles = page.run(
            "[...document.querySelectorAll('td')].map((e) => getComputedStyle(e))"
            ".map((s) => [s.textAlign, s.paddingLeft, s.whiteSpace])"
        )
    assert styles == [["right", "8px", "nowrap"], ["left", "8px", "nowrap"]]
