"""Shardings in types on meshes with Explicit axes: types, refusals and values."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import shardir as sd
from shardir.frontend.errors import ControlFlowError, ShardingTypeError
from shardir.sharding import (
    use_mesh,
)
from tests.frontend.shardings.explicit_programs import (
    PROGRAMS,
    REFUSED,
    Program,
    make_explicit_mesh,
    make_operand,
    trace_types,
)

ids = [program.name for program in PROGRAMS]


@pytest.fixture(autouse=True)
def mesh() -> Iterator[sd.Mesh]:
    mesh = make_explicit_mesh()
    with use_mesh(mesh):
        yield mesh


def types_of(fun: Any, *operands: str) -> str:
    return trace_types(Program("", fun, operands, ""))


def first_line(error: pytest.ExceptionInfo[Any]) -> str:
    return str(error.value).partition("\n")[0]


@pytest.mark.parametrize("program", PROGRAMS, ids=ids)
def test_the_type_is_that_of_jax(program: Program) -> None:
    if program.result == REFUSED:
        with pytest.raises((ShardingTypeError, ControlFlowError)) as caught:
            trace_types(program)
        assert "out_sharding=" in str(caught.value) or "reshard" in str(caught.value)
    else:
        assert trace_types(program) == program.result


def test_the_numbers_of_programs_are_those_of_the_table() -> None:
    assert len(PROGRAMS) == 97
    assert sum(program.result == REFUSED for program in PROGRAMS) == 33


@pytest.mark.parametrize(
    "program", [each for each in PROGRAMS if each.result == REFUSED], ids=lambda each: each.name
)
def test_lenient_mode_accepts_what_strict_mode_refuses(program: Program) -> None:
    with sd.config(explicit_sharding="lenient"):
        assert trace_types(program) != REFUSED


@pytest.mark.sample(8)
@pytest.mark.parametrize("program", PROGRAMS, ids=ids)
def test_the_values_do_not_depend_on_the_mesh(program: Program, mesh: sd.Mesh) -> None:
    with sd.config(explicit_sharding="lenient"):
        made = sd.jit(program.run)(*map(make_operand, program.operands))
    with use_mesh(sd.make_mesh((1, 1), ("x", "y"))):
        expected = sd.jit(program.run)(*map(make_operand, program.operands))
    leaves, others = sd.tree.leaves(made), sd.tree.leaves(expected)
    for one, other in zip(leaves, others, strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=2e-5, atol=1e-5)
        assert str(sd.typeof(one)).partition("[")[0] == str(one.dtype)


@pytest.mark.sample(8)
@pytest.mark.parametrize(
    "program", [each for each in PROGRAMS if each.result != REFUSED], ids=lambda each: each.name
)
def test_results_have_the_sharding_of_their_type(program: Program, mesh: sd.Mesh) -> None:
    if "unreduced" in program.name or not program.operands or "key[]" in program.operands:
        pytest.skip("the type is that of an intermediate value, or the program states no sharding")
    made = sd.jit(program.run)(*map(make_operand, program.operands))
    assert ";".join(str(sd.typeof(x)) for x in sd.tree.leaves(made)) == program.result
