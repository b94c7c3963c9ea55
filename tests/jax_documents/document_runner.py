"""Runs one document and records the outcome of every cell."""

import ast
import contextlib
import io
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from shardir.interop.in_place_of_jax import Program
from shardir.interop.jax_shim.jax_config import program_settings
from tests.jax_documents.cells import Cell, cells_of, missing_imports
from tests.jax_documents.document_text import Choices
from tests.jax_documents.output_comparison import verdict


@dataclass
class CellOutcome:
    """A cell, its output, the verdict on the output, and its error if it has one."""

    cell: Cell
    printed: str
    verdict: str
    error: str = ""


@dataclass
class Outcome:
    """The outcomes of the cells of a document."""

    cells: list[CellOutcome] = field(default_factory=list)

    @property
    def failed(self) -> int:
        return sum(bool(each.error) for each in self.cells)

    @property
    def good(self) -> bool:
        return not self.failed


def run_document(text: str, choices: Choices) -> Outcome:
    """Run the cells of `text`; an error in a cell does not stop the following cells."""
    cells = cells_of(choices.apply(text))
    namespace: dict[str, Any] = {"__name__": "__main__"}
    Program().adopt(namespace)
    outcome = Outcome()
    environment, lent = dict(os.environ), _color_stubs()
    try:
        with program_settings(choices.settings):
            exec(missing_imports(cells), namespace)
            for cell in cells:
                outcome.cells.append(_run(cell, namespace))
    finally:
        os.environ.clear()
        os.environ.update(environment)
        for name in lent:
            del sys.modules[name]
    return outcome


def _run(cell: Cell, namespace: dict[str, Any]) -> CellOutcome:
    """Run one cell as a notebook does: the value of a final expression is shown."""
    tree = ast.parse(cell.source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    out = io.StringIO()
    name = f"<cell at line {cell.line}>"
    error = ""
    with contextlib.redirect_stdout(out):
        try:
            exec(compile(tree, name, "exec"), namespace)
            if isinstance(last, ast.Expr):
                value = eval(compile(ast.Expression(last.value), name, "eval"), namespace)
                if value is not None:
                    print(repr(value))
        except Exception as raised:
            error = f"{type(raised).__name__}: {raised}".partition("\n")[0]
    return CellOutcome(cell, out.getvalue(), verdict(out.getvalue(), cell.shown), error)


def _color_stubs() -> Sequence[str]:
    """Stub packages that color the output of documents and are missing; return their names."""
    if find_spec("termcolor") is not None:
        return []
    module: Any = ModuleType("termcolor")
    module.colored = lambda text, *colours: text
    sys.modules["termcolor"] = module
    return ["termcolor"]
