"""LU decompositions and triangular solves with NumPy's LAPACK equal the reference."""

from itertools import product
from typing import Any

import numpy as np
import pytest

from shardir.backends.numpy import lapack_routines
from shardir.backends.numpy.kernel_table import kernel_of
from shardir.ir.builder import infer_types
from shardir.ir.module import Op, Value
from shardir.ir.operation import OPS, Symbol
from shardir.ir.types import TensorType
from tests.backends.cpu.phase_runner import make_op
from tests.op_evaluation import apply_reference


def lu_and_reference(x: np.ndarray[Any, Any], dtype: str) -> tuple[list[Any], list[Any]]:
    """Return the results of the LAPACK kernel and of the reference."""
    spec, type = OPS["lu"], TensorType(x.shape, dtype)
    types = infer_types(spec, (Value(type),), None, {})
    results = tuple(Value(each, f"r{i}") for i, each in enumerate(types))
    op = Op(spec, (Value(type, "x"),), results, {}, (), None, "")
    return list(kernel_of(op)(x)), list(apply_reference(spec, x, result=types))


@pytest.mark.sample(3)
@pytest.mark.parametrize("dtype", ["f32", "f64", "c64", "c128"])
@pytest.mark.parametrize(
    "shape", [(1, 1), (5, 5), (6, 3), (3, 6), (2, 3, 4, 4), (2, 0, 0), (0, 3, 3), (40, 40)]
)
def test_lu_chooses_the_pivots_of_the_reference(shape: tuple[int, ...], dtype: str) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal(shape) + (1j * rng.standard_normal(shape) if dtype[0] == "c" else 0)
    x = x.astype(TensorType((), dtype).numpy)
    if shape == (5, 5):
        x[2] = x[1]  # singular
    found, expected = lu_and_reference(x, dtype)
    for got, want in zip(found, expected, strict=True):
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
    for got, want in zip(found[1:], expected[1:], strict=True):
        np.testing.assert_array_equal(got, want)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-4, atol=1e-5)


def test_nonfinite_matrices_are_left_to_the_reference() -> None:
    x = np.array([[1.0, np.nan], [np.inf, 2.0]])
    for got, want in zip(*lu_and_reference(x, "f64"), strict=True):
        np.testing.assert_array_equal(got, want)


def test_lu_works_without_a_lapack_symbol(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lapack_routines, "SYMBOL_PATTERNS", (("no_{}_here", np.int64),))
    lapack_routines.find_routine.cache_clear()
    try:
        assert lapack_routines.find_routine("dgetrf") is None
        found, expected = lu_and_reference(np.array([[1.0, 2.0], [3.0, 4.0]]), "f64")
        for got, want in zip(found, expected, strict=True):
            np.testing.assert_array_equal(got, want)
    finally:
        monkeypatch.undo()
        lapack_routines.find_routine.cache_clear()


@pytest.mark.sample(3)
@pytest.mark.parametrize("dtype", ["f32", "f64", "c64", "c128"])
@pytest.mark.parametrize("shape", [(1, 1), (5, 5), (2, 3, 4, 4), (0, 3, 3), (2, 0, 0)])
def test_triangular_solves_match_the_reference(shape: tuple[int, ...], dtype: str) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal(shape) + (1j * rng.standard_normal(shape) if dtype[0] == "c" else 0)
    a = (x / 4 + np.eye(shape[-1])).astype(TensorType((), dtype).numpy)
    cases = product((True, False), ("no", "transpose", "adjoint"), (True, False), (1, 3, 0))
    for lower, transpose, unit, columns in cases:
        y = rng.standard_normal((*shape[:-1], columns)).astype(a.dtype)
        types = [TensorType(each.shape, dtype) for each in (a, y)]
        attrs = {"lower": lower, "transpose": Symbol(transpose), "unit": unit}
        op = make_op(OPS["triangular_solve"], *types, **attrs)
        before = y.copy()
        found = kernel_of(op)(a, y)
        np.testing.assert_array_equal(y, before)
        expected = apply_reference(op.spec, a, y, result=op.result.type, **attrs)
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)
