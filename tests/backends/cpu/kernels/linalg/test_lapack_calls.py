"""LAPACK called from machine code has the numbers of the reference, which is NumPy calling it."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from shardir.backends.cpu.kernels.linalg import RULES, lapack_calls
from shardir.backends.cpu.kernels.linalg.lapack_qr import lower_qr_by_lapack
from shardir.backends.numpy import lapack_routines
from shardir.ir.module import Op
from shardir.ir.operation import OPS
from shardir.ir.types import NUMPY_DTYPES, REAL_OF, TensorType
from tests.backends.cpu.kernels.linalg.test_factorizations import DTYPES, drawn, expected
from tests.backends.cpu.phase_runner import RuleHarness, lower_and_run, make_op, run_rule

Array = npt.NDArray[Any]
EIGEN = [("eigh", {"vectors": True}), ("eigh", {"vectors": False}),
         ("eig", {"vectors": True}), ("eig", {"vectors": False})]  # fmt: skip
ANY = [("qr", {"full": True}), ("qr", {"full": False}),
       ("svd", {"full": True, "vectors": True}), ("svd", {"full": False, "vectors": True}),
       ("svd", {"full": False, "vectors": False})]  # fmt: skip

OURS = [("qr", "f64"), ("qr", "f32"), ("eigh", "f32"), ("svd", "f32"), ("pinv", "f32")]
"""Not LAPACK's alone, so that the last digits may be others."""


def operation(name: str, attrs: dict[str, Any], arrays: list[Array], dtype: str) -> Op:
    real = REAL_OF.get(dtype, dtype)
    kinds = [dtype if x.dtype == NUMPY_DTYPES[dtype] else real for x in arrays]
    types = [TensorType(x.shape, kind) for x, kind in zip(arrays, kinds, strict=True)]
    return make_op(OPS[name], *types, **attrs)


def compare(name: str, attrs: dict[str, Any], arrays: list[Array], dtype: str) -> list[Array]:
    op = operation(name, attrs, arrays, dtype)
    found = run_rule(RULES[name], op, arrays)
    for got, want in zip(found, expected(op, *arrays), strict=True):
        # Products of the pseudo-inverse may be summed in another order; some work is ours.
        ours = (name, dtype) in OURS
        error = 0.0 if name != "pinv" and not ours else 1e-5 if dtype == "f32" else 1e-14
        np.testing.assert_allclose(got, want, rtol=0, atol=error)
    return found


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1), (5, 5), (8, 8), (2, 3, 9, 9), (33, 33)])
@pytest.mark.parametrize(("name", "attrs"), EIGEN + ANY)
def test_the_numbers_of_numpy(
    name: str, attrs: dict[str, Any], shape: tuple[int, ...], dtype: str
) -> None:
    x = drawn(shape, dtype)
    compare(name, attrs, [x], dtype)
    compare(name, attrs, [np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2)], dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(9, 4), (4, 9), (2, 20, 7), (1, 7), (7, 1)])
@pytest.mark.parametrize(("name", "attrs"), ANY)
def test_matrices_that_are_not_square(
    name: str, attrs: dict[str, Any], shape: tuple[int, ...], dtype: str
) -> None:
    compare(name, attrs, [drawn(shape, dtype)], dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(5, 5), (9, 4), (4, 9), (2, 3, 20, 7)])
def test_equations_that_need_not_have_a_solution(shape: tuple[int, ...], dtype: str) -> None:
    x, limit = drawn(shape, dtype), np.full(shape[:-2], 1e-3, NUMPY_DTYPES[dtype])
    limit = limit.real.copy()
    x[..., 1] = x[..., 0]  # one singular value does not count
    compare("pinv", {}, [x, limit], dtype)
    y = drawn((*shape[:-1], 3), dtype)
    compare("least_squares", {}, [x, y, limit], dtype)
    y[..., 2, 1] = np.inf
    found, _ = compare("least_squares", {}, [x, y, limit], dtype)
    assert np.isnan(found[..., 1]).all()
    assert np.isfinite(found[..., [0, 2]]).all()


@pytest.mark.parametrize("dtype", ["f32", "c128"])
@pytest.mark.parametrize(("name", "attrs"), [*EIGEN, *ANY])
def test_matrices_larger_than_scratch_memory(
    name: str, attrs: dict[str, Any], dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are worked on in memory of the program's, a piece for each task."""
    x = drawn((6, 10, 10), dtype)
    monkeypatch.setattr(lapack_calls, "SCRATCH_BYTES_PER_WORKER", 1000)
    monkeypatch.setattr(lapack_calls, "CALL_NANOSECONDS", 1e6)
    op = operation(name, attrs, [x], dtype)
    outs = [np.zeros(v.type.shape, v.type.numpy) for v in op.results]
    rule = lower_qr_by_lapack if name == "qr" else RULES[name]
    exact = (name, dtype) not in OURS or name == "qr"
    phases = lower_and_run(rule, op, [x], outs, workers=8)
    assert phases is not None
    assert phases[0].tasks > 1
    for got, want in zip(outs, expected(op, x), strict=True):
        np.testing.assert_allclose(got, want, rtol=0, atol=0 if exact else 1e-5)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("name", "attrs"), [*EIGEN[2:], *ANY[2:]])
@pytest.mark.parametrize("what", [np.nan, np.inf])
def test_what_is_not_finite_makes_one_matrix_nan(
    name: str, attrs: dict[str, Any], what: float, dtype: str
) -> None:
    x = drawn((3, 5, 5), dtype)
    x[1, 4, 2] = what
    found = run_rule(RULES[name], operation(name, attrs, [x], dtype), [x])
    wanted = expected(operation(name, attrs, [x[::2]], dtype), x[::2].copy())
    for got, want in zip(found, wanted, strict=True):
        assert np.isnan(got[1]).all()
        np.testing.assert_array_equal(got[::2], want)


@pytest.mark.parametrize("dtype", DTYPES)
def test_eigh_reads_the_lower_triangle_alone(dtype: str) -> None:
    x = drawn((9, 9), dtype)
    x[np.triu_indices(9, 1)] = np.nan
    found = run_rule(RULES["eigh"], operation("eigh", {"vectors": True}, [x], dtype), [x])
    assert all(np.isfinite(each).all() for each in found)


def test_as_much_memory_as_lapack_asks_for() -> None:
    called = lapack_calls.LapackRoutine("dgeqrf", "m n *a m *tau *work lwork info")
    found = lapack_calls.query_workspace(called, (("m", 300), ("n", 200)))
    assert found is not None
    assert found["lwork"] >= 200
    missing = lapack_calls.LapackRoutine("no_such_function", "n info")
    assert lapack_calls.query_workspace(missing, (("n", 1),)) is None


def test_where_lapack_cannot_be_found_numpy_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lapack_calls, "find_routine", lambda name: None)
    lapack_calls.query_workspace.cache_clear()
    try:
        x = drawn((5, 5), "f64")
        op = operation("eigh", {"vectors": False}, [x], "f64")
        out = np.zeros(5)
        assert lower_and_run(RULES["eigh"], op, [x], [out]) is None
    finally:
        monkeypatch.undo()
        lapack_calls.query_workspace.cache_clear()


def test_no_elements() -> None:
    x = np.zeros((0, 3, 3))
    assert run_rule(RULES["eigh"], operation("eigh", {"vectors": True}, [x], "f64"), [x])
    bench = RuleHarness()
    tall = np.zeros((3, 0))
    op = operation("qr", {"full": True}, [tall], "f64")
    outs = [bench.view(np.zeros(v.type.shape)) for v in op.results]
    assert RULES["qr"](op, [bench.view(tall)], outs, bench) is None


def test_machine_code_finds_lapack_by_its_own_names() -> None:
    assert lapack_routines.routine_addresses(
        ["lapack_dsyevd", "lapack_no_such", "other"]
    ).keys() == {"lapack_dsyevd"}
