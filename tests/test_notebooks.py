"""The cells of notebooks run, and their stored outputs are those of a run."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.notebooks import (
    NOTEBOOKS,
    ROOT,
    code_cells,
    empty_folder,
    is_compared,
    read_notebook,
    run_cells,
    text_of,
    update_notebook,
)
from tests.optional_dependencies import require

HINT = "python -m tests.notebooks --update rewrites the outputs"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_stored_outputs_are_those_of_a_run(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require("mpi4py")  # A cell starts two processes.
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook = read_notebook(path)
    with empty_folder():
        for cell, outputs in zip(code_cells(notebook), run_cells(notebook), strict=True):
            if not is_compared(cell):
                assert cell["outputs"]
                continue
            assert text_of(cell["outputs"]) == text_of(outputs), HINT
            assert cell["outputs"] == outputs, HINT


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_the_files_have_the_format_of_jupyter(path: Path) -> None:
    notebook = read_notebook(path)
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    identifiers = [cell["id"] for cell in notebook["cells"]]
    assert len(set(identifiers)) == len(identifiers)
    assert path.read_text(encoding="utf-8") == (
        json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
    )


def test_a_different_stored_output_is_found_and_rewritten(tmp_path: Path) -> None:
    cell: dict[str, Any] = {
        "cell_type": "code",
        "execution_count": None,
        "id": "sum",
        "metadata": {},
        "outputs": [],
        "source": ["print('text')\n", "1 + 1"],
    }
    path = tmp_path / "small.ipynb"
    path.write_text(json.dumps({"cells": [cell]}), encoding="utf-8")
    assert text_of(next(run_cells(read_notebook(path)))) == "text\n\n2"
    assert update_notebook(path)
    assert not update_notebook(path)
    (stored,) = code_cells(read_notebook(path))
    assert text_of(stored["outputs"]) == "text\n\n2"
