"""`docs/errors.md` shows errors as they are: every example is run and its text compared.

The first Python block of the page begins every program. Each other block is the file `example.py`
of a program of its own: one with a block of text behind it raises the error whose text that is,
any other runs.
"""

import linecache
import re
from pathlib import Path
from typing import Any

import pytest

from shardir.errors import ShardirError
from tests.optional_dependencies import missing_extra, reason_without

PAGE = Path(__file__).parents[1] / "docs" / "errors.md"
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)
PRELUDE, *EXAMPLES = [(match[1], match[2]) for match in BLOCK.finditer(PAGE.read_text("utf-8"))]


def run(body: str) -> None:
    """Run an example in the current folder; errors show lines of files there."""
    namespace: dict[str, Any] = {"__name__": "example"}
    exec(PRELUDE[0], namespace)
    Path("example.py").write_text(body, encoding="utf-8")
    linecache.clearcache()
    exec(compile(body, "example.py", "exec"), namespace)


def message(error: ShardirError) -> str:
    """Return Python's text of the error, without the traceback and the folders of modules."""
    return f"{type(error).__name__}: {error}\n"


@pytest.mark.parametrize(("body", "text"), EXAMPLES, ids=[f"{i:02}" for i in range(len(EXAMPLES))])
def test_an_example_raises_its_error(
    body: str, text: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if text is None:
        run(body)
        return
    with pytest.raises(ShardirError) as caught:
        run(body)
    if extra := missing_extra(caught.value):
        pytest.skip(reason_without(extra))
    got = message(caught.value)
    # Parts that may grow later, such as the list of all passes, are omitted as [...].
    start, cut, end = text.partition("[...]")
    if cut and got.startswith(start) and got.endswith(end):
        return
    assert got == text


def test_the_page_has_an_error_under_every_heading() -> None:
    sections = re.split(r"^### ", PAGE.read_text("utf-8"), flags=re.MULTILINE)[1:]
    assert len(sections) > 60
    for section in sections:
        assert "```text\n" in section, section.partition("\n")[0]
