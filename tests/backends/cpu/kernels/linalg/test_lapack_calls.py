"""Native calls of LAPACK give the results of the reference, in which NumPy calls LAPACK."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from shardir.backends.cpu.kernels.linalg import lapack_calls
from shardir.backends.cpu.kernels.linalg.qr import lower_qr_by_lapack
from shardir.backends.cpu.kernels.rules import RULES
from shardir.backends.numpy import lapack_routines
from shardir.ir.module import Op
from shardir.ir.operation import OPS
from shardir.ir.types import NUMPY_DTYPES, REAL_OF, TensorType
from tests.backends.cpu.kernels.linalg.test_factorizations import (
    DTYPES,
    random_matrices,
    reference_factors,
)
from tests.backends.cpu.phase_runner import RuleHarness, lower_and_run, make_op, run_rule

pytestmark = pytest.mark.sample(3)

Array = npt.NDArray[Any]
EIGEN_CASES = [("eigh", {"vectors": True}), ("eigh", {"vectors": False}),
         ("eig", {"vectors": True}), ("eig", {"vectors": False})]  # fmt: skip
FACTORIZATION_CASES = [("qr", {"full": True}), ("qr", {"full": False}),
       ("svd", {"full": True, "vectors": True}), ("svd", {"full": False, "vectors": True}),
       ("svd", {"full": False, "vectors": False})]  # fmt: skip

NATIVE_CASES = [("qr", "f64"), ("qr", "f32")]
"""Not computed by LAPACK alone, so that the last digits may differ."""


def make_operation(name: str, attrs: dict[str, Any], arrays: list[Array], dtype: str) -> Op:
    real = REAL_OF.get(dtype, dtype)
    kinds = [dtype if x.dtype == NUMPY_DTYPES[dtype] else real for x in arrays]
    types = [TensorType(x.shape, kind) for x, kind in zip(arrays, kinds, strict=True)]
    return make_op(OPS[name], *types, **attrs)


def compare(name: str, attrs: dict[str, Any], arrays: list[Array], dtype: str) -> list[Array]:
    op = make_operation(name, attrs, arrays, dtype)
    found = run_rule(RULES[name], op, arrays)
    for got, want in zip(found, reference_factors(op, *arrays), strict=True):
        # The pseudo-inverse may sum in another order; some steps have native kernels.
        is_native = (name, dtype) in NATIVE_CASES
        error = 0.0 if name != "pinv" and not is_native else 1e-5 if dtype == "f32" else 1e-14
        np.testing.assert_allclose(got, want, rtol=0, atol=error)
    return found


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1), (5, 5), (8, 8), (2, 3, 9, 9), (33, 33)])
@pytest.mark.parametrize(("name", "attrs"), EIGEN_CASES + FACTORIZATION_CASES)
def test_lapack_calls_give_the_results_of_numpy(
    name: str, attrs: dict[str, Any], shape: tuple[int, ...], dtype: str
) -> None:
    x = random_matrices(shape, dtype)
    compare(name, attrs, [x], dtype)
    compare(name, attrs, [np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2)], dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(9, 4), (4, 9), (2, 20, 7), (1, 7), (7, 1)])
@pytest.mark.parametrize(("name", "attrs"), FACTORIZATION_CASES)
def test_rectangular_matrices_give_the_results_of_numpy(
    name: str, attrs: dict[str, Any], shape: tuple[int, ...], dtype: str
) -> None:
    compare(name, attrs, [random_matrices(shape, dtype)], dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(5, 5), (9, 4), (4, 9), (2, 3, 20, 7)])
def test_pinv_and_least_squares_give_the_results_of_numpy(
    shape: tuple[int, ...], dtype: str
) -> None:
    x, limit = random_matrices(shape, dtype), np.full(shape[:-2], 1e-3, NUMPY_DTYPES[dtype])
    limit = limit.real.copy()
    x[..., 1] = x[..., 0]  # a singular value below the limit
    compare("pinv", {}, [x, limit], dtype)
    y = random_matrices((*shape[:-1], 3), dtype)
    compare("least_squares", {}, [x, y, limit], dtype)
    y[..., 2, 1] = np.inf
    found, _ = compare("least_squares", {}, [x, y, limit], dtype)
    assert np.isnan(found[..., 1]).all()
    assert np.isfinite(found[..., [0, 2]]).all()


@pytest.mark.parametrize("dtype", ["f32", "c128"])
@pytest.mark.parametrize(("name", "attrs"), [*EIGEN_CASES, *FACTORIZATION_CASES])
def test_matrices_larger_than_scratch_memory(
    name: str, attrs: dict[str, Any], dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """These use a temporary buffer of the program, divided between the tasks."""
    x = random_matrices((6, 10, 10), dtype)
    monkeypatch.setattr(lapack_calls, "SCRATCH_BYTES_PER_WORKER", 1000)
    monkeypatch.setattr(lapack_calls, "CALL_NANOSECONDS", 1e6)
    op = make_operation(name, attrs, [x], dtype)
    outs = [np.zeros(v.type.shape, v.type.numpy) for v in op.results]
    rule = lower_qr_by_lapack if name == "qr" else RULES[name]
    exact = (name, dtype) not in NATIVE_CASES or name == "qr"
    phases = lower_and_run(rule, op, [x], outs, workers=8)
    assert phases is not None
    assert phases[0].tasks > 1
    for got, want in zip(outs, reference_factors(op, x), strict=True):
        np.testing.assert_allclose(got, want, rtol=0, atol=0 if exact else 1e-5)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("name", "attrs"), [*EIGEN_CASES[2:], *FACTORIZATION_CASES[2:]])
@pytest.mark.parametrize("nonfinite", [np.nan, np.inf])
def test_a_nonfinite_matrix_gives_nan_and_leaves_others_unchanged(
    name: str, attrs: dict[str, Any], nonfinite: float, dtype: str
) -> None:
    x = random_matrices((3, 5, 5), dtype)
    x[1, 4, 2] = nonfinite
    found = run_rule(RULES[name], make_operation(name, attrs, [x], dtype), [x])
    expected = reference_factors(make_operation(name, attrs, [x[::2]], dtype), x[::2].copy())
    for got, want in zip(found, expected, strict=True):
        assert np.isnan(got[1]).all()
        np.testing.assert_array_equal(got[::2], want)


@pytest.mark.parametrize("dtype", DTYPES)
def test_eigh_reads_only_the_lower_triangle(dtype: str) -> None:
    x = random_matrices((9, 9), dtype)
    x[np.triu_indices(9, 1)] = np.nan
    found = run_rule(RULES["eigh"], make_operation("eigh", {"vectors": True}, [x], dtype), [x])
    assert all(np.isfinite(each).all() for each in found)


def test_workspace_sizes_come_from_lapack() -> None:
    routine = lapack_calls.LapackRoutine("dgeqrf", "m n *a m *tau *work lwork info")
    found = lapack_calls.query_workspace(routine, (("m", 300), ("n", 200)))
    assert found is not None
    assert found["lwork"] >= 200
    missing = lapack_calls.LapackRoutine("no_such_function", "n info")
    assert lapack_calls.query_workspace(missing, (("n", 1),)) is None


def test_without_lapack_symbols_numpy_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lapack_calls, "find_routine", lambda name: None)
    lapack_calls.query_workspace.cache_clear()
    try:
        x = random_matrices((5, 5), "f64")
        op = make_operation("eigh", {"vectors": False}, [x], "f64")
        out = np.zeros(5)
        assert lower_and_run(RULES["eigh"], op, [x], [out]) is None
    finally:
        monkeypatch.undo()
        lapack_calls.query_workspace.cache_clear()


def test_empty_matrices_are_supported() -> None:
    x = np.zeros((0, 3, 3))
    assert run_rule(RULES["eigh"], make_operation("eigh", {"vectors": True}, [x], "f64"), [x])
    harness = RuleHarness()
    tall = np.zeros((3, 0))
    op = make_operation("qr", {"full": True}, [tall], "f64")
    outs = [harness.view(np.zeros(v.type.shape)) for v in op.results]
    assert RULES["qr"](op, [harness.view(tall)], outs, harness) is None


def test_lapack_routines_have_symbols_for_native_code() -> None:
    assert lapack_routines.routine_addresses(
        ["lapack_dsyevd", "lapack_no_such", "other"]
    ).keys() == {"lapack_dsyevd"}
