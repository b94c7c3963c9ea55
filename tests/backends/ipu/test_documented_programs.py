"""The documented programs equal the emitted programs, and have the intended form."""

import re
from typing import Any

import numpy as np

import shardir as sd
import shardir.numpy as snp
from shardir import lax
from shardir.backends.ipu.codegen.line_wrapping import wrap_statement
from tests.backends.ipu.documented_programs import FOLDER, documented_texts
from tests.backends.ipu.host_model_execution import Case
from tests.backends.ipu.model_steps import normal_array


def test_documented_programs_equal_the_emitted_programs() -> None:
    for path, text in documented_texts().items():
        assert path.read_text(encoding="utf-8") == text, (
            f"{path.name} differs from the emitted program; run "
            "python -m tests.backends.ipu.documented_programs"
        )


def test_every_documented_program_is_emitted() -> None:
    assert sorted(FOLDER.glob("ipu_*/*.cpp")) == sorted(documented_texts())


def test_lines_are_at_most_100_characters_long() -> None:
    for text in documented_texts().values():
        assert max(map(len, text.splitlines())) <= 100


def test_values_keep_their_names() -> None:
    text = next(
        text for path, text in documented_texts().items() if path.name == "perceptron_step.cpp"
    )
    assert re.search(r"Tensor hidden = popops::map\(graph, pe::Tanh\(pe::_1 \+ pe::_2\),", text)
    assert 'step, "hidden");' in text


def test_scalars_are_constants_of_expressions_without_broadcasts() -> None:
    """Poplibs cannot fuse an expression over a tensor that is already broadcast."""

    def scale_and_reduce(x: Any, by: Any) -> Any:
        total = x.sum()
        return snp.tanh(x * by + 1.5) - total, sd.grad(lambda x: (x * x).mean())(x)

    text = Case.of(sd.jit(scale_and_reduce).lower(normal_array(4, 4), np.float32(2)), ()).text
    assert ".broadcast(" not in text
    assert "number" not in text
    assert "pe::Const(1.5f)" in text


def test_long_statements_are_wrapped_before_view_methods() -> None:
    line = (
        "Tensor y = poplin::matMulGrouped(graph, x.dimShuffle({0, 1, 3, 2}).reshape({2, 8, 8}), "
        'step, "y").reshape({2, 1, 8, 4}).dimShuffle({0, 2, 1, 3});'
    )
    assert wrap_statement(line, "  ") == [
        "  Tensor y = poplin::matMulGrouped(graph, x.dimShuffle({0, 1, 3, 2}).reshape({2, 8, 8}), "
        'step, "y")',
        "      .reshape({2, 1, 8, 4}).dimShuffle({0, 2, 1, 3});",
    ]
    assert wrap_statement(f"program.take(x{'.reshape({1, 2, 3, 4})' * 6});", "") == [
        f"program.take(x{'.reshape({1, 2, 3, 4})' * 3}",
        f"    {'.reshape({1, 2, 3, 4})' * 3});",
    ]


def test_slices_at_constant_offsets_are_views() -> None:
    def slice_and_update(x: Any) -> Any:
        part = lax.dynamic_slice(x, (1, 9), (2, 2))
        return part, lax.dynamic_update_slice(x.astype(np.int16), snp.zeros((2, 2), "i2"), (-1, 0))

    text = Case.of(sd.jit(slice_and_update).lower(normal_array(4, 4)), ()).text
    assert "popops::dynamic" not in text
    assert re.search(r"x\.slice\(1, 3, 0\)\.slice\(2, 4, 1\)", text)
