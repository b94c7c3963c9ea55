"""LU and Cholesky factors and triangular solves in scratch memory match the reference."""

from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from shardir.backends.cpu.kernels.rules import RULES
from shardir.ir.module import Op
from shardir.ir.operation import OPS, Symbol
from shardir.ir.types import NUMPY_DTYPES, TensorType
from tests.backends.cpu.phase_runner import lower_and_run, make_op, run_rule

pytestmark = pytest.mark.sample(2)

Array = npt.NDArray[Any]
DTYPES = ("f32", "f64", "c64", "c128")
SHAPES = [(1, 1), (5, 5), (8, 8), (6, 3), (3, 6), (20, 9), (9, 20), (2, 3, 4, 4), (7, 17, 17),
          (40, 40), (0, 3, 3), (2, 0, 0), (2, 0, 3)]  # fmt: skip


def random_matrices(shape: tuple[int, ...], dtype: str) -> Array:
    rng = np.random.default_rng(sum(shape))
    x = rng.standard_normal(shape) + (1j * rng.standard_normal(shape) if dtype[0] == "c" else 0)
    return x.astype(NUMPY_DTYPES[dtype])


def reference_factors(op: Op, *arrays: Array) -> list[Array]:
    types = tuple(value.type for value in op.results)
    reference: Any = op.spec.reference
    made = reference(*arrays, result=types if len(types) > 1 else types[0], **op.rule_arguments)
    return list(made) if len(types) > 1 else [made]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_lu_matches_the_reference(shape: tuple[int, ...], dtype: str) -> None:
    x = random_matrices(shape, dtype)
    if shape == (5, 5):
        x[2] = x[1]  # singular
    op = make_op(OPS["lu"], TensorType(shape, dtype))
    expected = reference_factors(op, x)
    for layout in (x, np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2)):
        found = run_rule(RULES["lu"], op, [layout])
        np.testing.assert_allclose(found[0], expected[0], rtol=1e-4, atol=1e-5)
        for got, want in zip(found[1:], expected[1:], strict=True):
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1), (2, 3, 4, 4), (3, 19, 19), (0, 3, 3), (2, 0, 0)])
def test_triangular_solves_match_the_reference(shape: tuple[int, ...], dtype: str) -> None:
    """All directions; one right-hand side, or more than one task solves."""
    a = random_matrices(shape, dtype) / 4 + np.eye(shape[-1])
    a = a.astype(NUMPY_DTYPES[dtype])
    cases = product((True, False), ("no", "transpose", "adjoint"), (True, False), (1, 130, 0))
    for lower, transpose, unit, columns in cases:
        y = random_matrices((*shape[:-1], columns), dtype)
        types = [TensorType(x.shape, dtype) for x in (a, y)]
        attrs = {"lower": lower, "transpose": Symbol(transpose), "unit": unit}
        op = make_op(OPS["triangular_solve"], *types, **attrs)
        # NaN fills the elements that must not be read.
        triangle = np.tril(a, -unit) if lower else np.triu(a, unit)
        unread = np.triu(np.ones(shape), 1 - unit) if lower else np.tril(np.ones(shape), unit - 1)
        (found,) = run_rule(
            RULES["triangular_solve"], op, [np.where(unread != 0, np.nan, triangle), y]
        )
        np.testing.assert_allclose(
            found, reference_factors(op, triangle, y)[0], rtol=1e-3, atol=1e-4
        )


@pytest.mark.parametrize("columns", [3, 12])
def test_column_major_right_hand_sides_are_solved(columns: int) -> None:
    a, y = (
        random_matrices((5, 6, 6), "f32") + 3 * np.eye(6, dtype=np.float32),
        random_matrices((5, 6, columns), "f32"),
    )
    layout = np.ascontiguousarray(y.swapaxes(1, 2)).swapaxes(1, 2)
    types = [TensorType(x.shape, "f32") for x in (a, y)]
    op = make_op(OPS["triangular_solve"], *types, lower=False, transpose=Symbol("no"), unit=False)
    out = np.zeros_like(layout)
    lower_and_run(RULES["triangular_solve"], op, [a[::-1], layout], [out])
    np.testing.assert_allclose(out, reference_factors(op, a[::-1], y)[0], rtol=1e-4, atol=1e-5)


def test_lu_of_nonfinite_matrices_chooses_the_first_nan() -> None:
    x = np.array([[1, 2, 3], [np.inf, 1, 1], [np.nan, 1, np.nan]])
    op = make_op(OPS["lu"], TensorType(x.shape, "f64"))
    for got, want in zip(
        run_rule(RULES["lu"], op, [x])[1:], reference_factors(op, x)[1:], strict=True
    ):
        np.testing.assert_array_equal(got, want)


def test_factorizations_do_not_depend_on_the_worker_count() -> None:
    a, y = random_matrices((9, 12, 12), "f32"), random_matrices((9, 12, 300), "f32")
    types = [TensorType(x.shape, "f32") for x in (a, y)]
    op = make_op(OPS["triangular_solve"], *types, lower=True, transpose=Symbol("no"), unit=True)
    few, many = (run_rule(RULES["triangular_solve"], op, [a, y], workers=n) for n in (1, 7))
    np.testing.assert_array_equal(few[0], many[0])
    op = make_op(OPS["lu"], types[0])
    few, many = (run_rule(RULES["lu"], op, [a], workers=n) for n in (1, 7))
    for one, other in zip(few, many, strict=True):
        np.testing.assert_array_equal(one, other)


def test_large_matrices_are_left_to_lapack() -> None:
    type = TensorType((800, 800), "f64")
    x, y = np.zeros((800, 800)), np.zeros((800, 1))
    op = make_op(OPS["lu"], type)
    outs = [np.zeros(v.type.shape, v.type.numpy) for v in op.results]
    assert lower_and_run(RULES["lu"], op, [x], outs) is None
    attrs = {"lower": True, "transpose": Symbol("no"), "unit": True}
    op = make_op(OPS["triangular_solve"], type, TensorType(y.shape, "f64"), **attrs)
    assert lower_and_run(RULES["triangular_solve"], op, [x, y], [y]) is None


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [1, 3, 8, 9, 21])
def test_cholesky_matches_the_reference(size: int, dtype: str) -> None:
    """Only the lower triangle is read; a matrix without a factor gives NaN."""
    x = random_matrices((2, 3, size, size), dtype)
    x = x @ x.conj().swapaxes(-1, -2) + np.eye(size)
    x[0, 1, size - 1, size - 1] = -1
    x[1, 2, 0, 0] = np.nan
    x = np.tril(x).astype(NUMPY_DTYPES[dtype])
    op = make_op(OPS["cholesky"], TensorType(x.shape, dtype))
    (expected,) = reference_factors(op, x)
    assert np.isnan(expected[0, 1]).all()
    for layout in (x, np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2)):
        (found,) = run_rule(RULES["cholesky"], op, [layout])
        assert np.isnan(found[1, 2]).all()
        found[1, 2] = expected[1, 2]  # LAPACK has zeros above the diagonal
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    (one,) = run_rule(RULES["cholesky"], op, [x], workers=1)
    one[1, 2] = expected[1, 2]
    np.testing.assert_array_equal(one, found)
