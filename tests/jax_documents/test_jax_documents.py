"""The runner of documents, on small documents of our own."""

import json
from pathlib import Path

import pytest

from tests.jax_documents.__main__ import main
from tests.jax_documents.cells import cells_of
from tests.jax_documents.document_runner import run_document
from tests.jax_documents.document_text import Choices, restore_drawings
from tests.jax_documents.output_comparison import verdict

NOTEBOOK = """\
# Sums over devices

Some prose, which Python cannot read.

In [1]:
!pip install something
import numpy as np
from jax import lax, pmap

Found something

In [2]:
def total(x):

    return lax.psum(x, axis_name="i")

made = pmap(total, axis_name="i")(np.arange(4.0, dtype=np.float32))
print(made)
made



[6. 6. 6. 6.]

ShardedDeviceArray([6., 6., 6., 6.],
                   dtype=float32)

In [3]:
%timeit total(made)

12 ms ± 1 ms per loop

In [4]:
print("wider" )
made.shape

narrower
(4,)
"""

PAGE = """\
Drawing

x is cut here:

x = jnp.zeros((4096, 4096))
try: x.nothing
except AttributeError as error: print(type(error).__mro__[-4].__name__)
AttributeError
x.shape
(4096, 4096)
That's it! Now

answer
for i in range(2):
  # A comment.

  print(i)
0
1

missing_function(x)

jax.nothing(x)
"""

LIBRARY = """\
Training

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
import jax.sharding as sharding
from jax.experimental import mesh_utils

model = eqx.nn.Linear(4, 2, key=jr.PRNGKey(0))
optim = optax.sgd(0.1)

def loss(model, x):
    return jnp.mean(jax.vmap(model)(x) ** 2)

def batches():
    while True:
        yield np.random.default_rng(0).normal(size=(16, 4))

def step(model, x):
    grads = eqx.filter_grad(loss)(model, x)
    updates, _ = optim.update(grads, optim.init(model))
    return eqx.apply_updates(model, updates)

This is where arrays are spread.

everywhere = sharding.PositionalSharding(mesh_utils.create_device_mesh((4, 2)))
for _, x in zip(range(3), batches()):
    model = step(model, jax.device_put(x, everywhere))
print(model.weight.shape, model.bias.sharding.num_devices)
model.bias.tolist()

(2, 4) 8
[-0.3014828, -0.3689226]
"""


def test_code_and_output_are_distinguished() -> None:
    first, second, last = cells_of(NOTEBOOK)
    assert (first.line, first.skipped) == (5, 1)
    assert first.code == ["import numpy as np", "from jax import lax, pmap"]
    assert second.code[0] == "def total(x):"
    assert second.code[-1] == "made"
    assert second.shown[-2].strip() == "dtype=float32)"
    assert last.code == ['print("wider" )', "made.shape"]
    page = cells_of(PAGE)
    assert [cell.code[0] for cell in page] == [
        "x = jnp.zeros((4096, 4096))",
        "x.shape",
        "for i in range(2):",
        "jax.nothing(x)",
    ]
    assert page[2].code[-1] == "  print(i)"


def test_cells_are_run_and_their_output_compared() -> None:
    outcome = run_document(NOTEBOOK, Choices())
    assert [ran.error for ran in outcome.cells] == ["", "", ""]
    assert [ran.verdict for ran in outcome.cells] == [
        "",
        "same output but for spaces",
        "other output",
    ]
    outcome = run_document(PAGE, Choices({"4096": "16"}))
    assert [ran.verdict for ran in outcome.cells] == ["same output"] * 3 + [""]
    assert outcome.cells[-1].error == (
        "UncoveredName: jax.nothing is not covered by shardir; nothing here is near to it"
    )
    assert not outcome.good


def test_notebooks_and_markdown_pages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def code(source: str, *outputs: dict[str, object]) -> dict[str, object]:
        return {"cell_type": "code", "source": source.splitlines(True), "outputs": outputs}

    def result(text: str) -> dict[str, object]:
        return {"output_type": "execute_result", "data": {"text/plain": text}}

    cells = [
        {"cell_type": "markdown", "source": ["# A notebook\n", "\n", "total\n"]},
        code("%matplotlib inline\nimport jax.numpy as jnp\ntotal = jnp.ones(3).sum()"),
        code(
            "print('total')\ntotal + 1",
            {"output_type": "stream", "text": ["total\n"]},
            result("Array(4., dtype=float32)"),
        ),
        code("%%bash\nls"),
        code("%%time\ntotal.shape", result("()")),
    ]
    (tmp_path / "a.ipynb").write_text(json.dumps({"cells": cells}), "utf-8")
    fence = "```"
    (tmp_path / "b.md").write_text(
        f"# A page\n\nIt has code:\n\n{fence}python\nimport jax\nx = jax.numpy.arange(2)\n"
        f"print(x)\n{fence}\n\n{fence}text\n[0 1]\n{fence}\n\nx\n\n{fence}sh\nls\n{fence}\n",
        "utf-8",
    )
    assert main([str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "A notebook (a.ipynb)",
        "  line    4: ok, 1 lines for the notebook skipped",
        "  line    8: ok, same output",
        "  line   16: ok, same output, 1 lines for the notebook skipped",
        "  3 of 3 cells run; 2 same output",
        "A page (b.md)",
        "  line    5: ok, same output",
        "  1 of 1 cells run; 1 same output",
    ]


def test_output_may_have_rounded_numbers() -> None:
    assert verdict("[1.0000001 2]", ["[1. 2]"]) == "same output but for rounding"
    assert verdict("[1.1 2]", ["[1. 2]"]) == "other output"
    assert verdict("", ["prose"]) == ""
    classes = "<class 'shardir.frontend.arrays.array.Array'>", ["<class 'a.b.ShardedDeviceArray'>"]
    assert verdict(*classes) == "same output"


def test_wrongly_decoded_drawings_are_restored() -> None:
    drawing = "┌──┬──┐\n│0 │1 │\n├──┼──┤\n│2 │3 │\n└──┴──┘"
    bytes_of = {0x90: "", 0xA4: "\u20ac", 0xAC: "\xac", 0xB4: "\u0384", 0xBC: "\u038c"}
    bytes_of |= {0x80: "\u20ac", 0x82: "\u201a", 0x8C: "\u0152", 0x94: "\u201d", 0x98: "\u02dc"}
    bytes_of |= {0x9C: "\u0153", 0xE2: "\u03b2"}
    spoiled = "".join(
        char if char.isascii() else "".join(bytes_of[byte] for byte in char.encode())
        for char in drawing
    )
    assert restore_drawings(spoiled) == drawing


def test_a_document_of_a_library_on_jax(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "training.txt").write_text(LIBRARY, "utf-8")
    (tmp_path / "sums.md").write_text(NOTEBOOK, "utf-8")
    assert main([str(tmp_path), "--only", "training", "--devices", "8"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Training (training.txt)"
    assert lines[-1] == "  2 of 2 cells run; 1 same output but for rounding"
    assert main([str(tmp_path), "--only", "sums", "--verbose"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[-1] == "  3 of 3 cells run; 1 other output, 1 same output but for spaces"
    assert "      wider" in said
