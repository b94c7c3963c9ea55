"""Run the cells of notebooks, and compare or rewrite the outputs that are stored in them.

    python -m tests.notebooks --update     (or with the names of notebooks)

The cells of a notebook run in order, as one program, in an empty folder. The outputs of a cell are
what it prints and the representation of its last expression, as text and as HTML, as Jupyter
stores them. IPython is not needed; its magics are not available.

The outputs of a cell with the tag `varies` are different in every run. Such a cell must run, but
its stored outputs are not compared, and are rewritten only if there are none.
"""

import argparse
import ast
import contextlib
import io
import json
import linecache
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "docs").glob("*.ipynb"))
VARIES = "varies"
"""The tag of cells with outputs that are not compared."""

Cell = dict[str, Any]
Output = dict[str, Any]


def read_notebook(path: Path) -> dict[str, Any]:
    """Return the JSON of a notebook."""
    notebook: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return notebook


def code_cells(notebook: dict[str, Any]) -> list[Cell]:
    """Return the cells of a notebook that contain code."""
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def run_cells(notebook: dict[str, Any]) -> Iterator[list[Output]]:
    """Run the code cells of a notebook in the current folder; yield the outputs of each."""
    namespace: dict[str, Any] = {"__name__": "__notebook__"}
    for number, cell in enumerate(code_cells(notebook), 1):
        yield _run_cell("".join(cell["source"]), number, namespace)


def is_compared(cell: Cell) -> bool:
    """Return whether the outputs of a cell are equal in every run."""
    return VARIES not in cell["metadata"].get("tags", ())


def text_of(outputs: list[Output]) -> str:
    """Return the text of outputs: what a cell prints, and the text of its last expression."""
    parts = [output.get("text") or output["data"]["text/plain"] for output in outputs]
    return "\n".join("".join(lines) for lines in parts)


def update_notebook(path: Path) -> bool:
    """Run a notebook and store the outputs of its cells; return whether the file has changed."""
    notebook = read_notebook(path)
    with empty_folder():
        found = list(run_cells(notebook))
    for number, (cell, outputs) in enumerate(zip(code_cells(notebook), found, strict=True), 1):
        cell["execution_count"] = number
        if is_compared(cell) or not cell["outputs"]:
            cell["outputs"] = outputs
    text = json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
    if text == path.read_text(encoding="utf-8"):
        return False
    path.write_text(text, encoding="utf-8")
    return True


@contextlib.contextmanager
def empty_folder() -> Iterator[Path]:
    """Change to an empty folder for a while."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        yield Path(folder)


def _run_cell(source: str, number: int, namespace: dict[str, Any]) -> list[Output]:
    """Run a cell; return its outputs in the form in which notebooks store them."""
    file = f"cell {number}"
    lines = source.splitlines(keepends=True)
    linecache.cache[file] = (len(source), None, lines, file)  # For errors, which quote the source.
    body = ast.parse(source, file).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(ast.Module(body, []), file, "exec"), namespace)
        value = None
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), file, "eval"), namespace)
    outputs: list[Output] = []
    if printed.getvalue():
        outputs.append(
            {"name": "stdout", "output_type": "stream", "text": _lines(printed.getvalue())}
        )
    if value is not None:
        outputs.append(_result(value, number))
    return outputs


def _result(value: object, number: int) -> Output:
    data = {}
    as_html = getattr(value, "_repr_html_", None)
    if as_html is not None and (html := as_html()) is not None:
        data["text/html"] = _lines(html)
    data["text/plain"] = _lines(repr(value))
    return {
        "data": data,
        "execution_count": number,
        "metadata": {},
        "output_type": "execute_result",
    }


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("notebooks", nargs="*", type=Path, default=NOTEBOOKS)
    parser.add_argument("--update", action="store_true", help="rewrite the stored outputs")
    options = parser.parse_args()
    if not options.update:
        parser.error("pass --update to rewrite outputs; pytest tests/test_notebooks.py compares")
    for path in options.notebooks:
        print(path, "changed" if update_notebook(path.resolve()) else "unchanged")


if __name__ == "__main__":
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    sys.path.insert(0, str(ROOT))
    main()
