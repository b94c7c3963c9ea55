"""Functions with several results return the containers of JAX: lists, tuples and named tuples."""

from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir import lax, scipy
from tests.optional_dependencies import require

A = np.random.default_rng(0).random((4, 4)).astype("float32") + 4 * np.eye(4, dtype="float32")
S = A + A.T
V = A[0]
B = np.arange(4, dtype="int32")

CONTAINERS = {
    "lax.linalg.cholesky_update(S, V)": "array",
    "lax.linalg.eig(A)": "list(array, array, array)",
    "lax.linalg.eig(A, compute_left_eigenvectors=False)": "list(array, array)",
    "lax.linalg.eigh(S)": "tuple(array, array)",
    "lax.linalg.hessenberg(A)": "list(array, array)",
    "lax.linalg.lu(A)": "list(array, array, array)",
    "lax.linalg.qdwh(A)": "tuple(array, array, array, array)",
    "lax.linalg.qr(A)": "tuple(array, array)",
    "lax.linalg.schur(A)": "list(array, array)",
    "lax.linalg.schur(A, compute_schur_vectors=False)": "list(array)",
    "lax.linalg.svd(A)": "tuple(array, array, array)",
    "lax.linalg.svd(A, compute_uv=False)": "array",
    "lax.linalg.tridiagonal(S)": "list(array, array, array, array)",
    "lax.approx_max_k(V, 2)": "list(array, array)",
    "lax.associative_scan(lambda a, b: (a[0], b[1]), (V, V))": "tuple(array, array)",
    "lax.cond(True, lambda x: [x, (x,)], lambda x: [x, (x,)], V)": "list(array, tuple(array))",
    "lax.optimization_barrier([V, (B,)])": "list(array, tuple(array))",
    "lax.reduce([V, V], [0.0, 0.0], lambda a, b: [a[0], b[1]], (0,))": "list(array, array)",
    "lax.rng_bit_generator(np.zeros(4, 'uint32'), (2,))": "tuple(array, array)",
    "lax.sort((V, B), num_keys=1)": "tuple(array, array)",
    "lax.sort([V, B], num_keys=1)": "tuple(array, array)",
    "lax.sort_key_val(V, B)": "tuple(array, array)",
    "lax.split(V, (1, 3))": "list(array, array)",
    "lax.top_k(V, 2)": "list(array, array)",
    "snp.linalg.eig(A)": "EigResult(array, array)",
    "snp.linalg.eigh(S)": "EighResult(array, array)",
    "snp.linalg.lstsq(A, V)": "tuple(array, array, array, array)",
    "snp.linalg.qr(A)": "QRResult(array, array)",
    "snp.linalg.qr(A, mode='r')": "array",
    "snp.linalg.slogdet(A)": "SlogdetResult(array, array)",
    "snp.linalg.svd(A)": "SVDResult(array, array, array)",
    "scipy.linalg.cho_factor(S)": "tuple(array, bool)",
    "scipy.linalg.expm_frechet(A, A)": "tuple(array, array)",
    "scipy.linalg.funm(A, snp.exp, disp=False)": "tuple(array, array)",
    "scipy.linalg.hessenberg(A, calc_q=True)": "tuple(array, array)",
    "scipy.linalg.lu(A)": "tuple(array, array, array)",
    "scipy.linalg.lu_factor(A)": "tuple(array, array)",
    "scipy.linalg.polar(A)": "tuple(array, array)",
    "scipy.linalg.qr(A)": "tuple(array, array)",
    "scipy.linalg.qr(A, mode='r')": "tuple(array)",
    "scipy.linalg.rsf2csf(A, A)": "tuple(array, array)",
    "scipy.linalg.schur(A)": "list(array, array)",
    "scipy.linalg.svd(A)": "tuple(array, array, array)",
    "scipy.sparse.linalg.bicgstab(A, V)": "tuple(array, None)",
    "scipy.sparse.linalg.cg(S, V)": "tuple(array, None)",
    "scipy.sparse.linalg.gmres(A, V)": "tuple(array, array)",
    "scipy.stats.mode(B)": "ModeResult(array, array)",
    "snp.atleast_1d(1, V)": "list(array, array)",
    "snp.average(V, returned=True)": "tuple(array, array)",
    "snp.broadcast_arrays(V, A)": "list(array, array)",
    "snp.divmod(B, 2)": "tuple(array, array)",
    "snp.gradient(A)": "list(array, array)",
    "snp.histogramdd(A[:, :2], bins=2)": "tuple(array, list(array, array))",
    "snp.indices((2, 2), sparse=True)": "tuple(array, array)",
    "snp.ix_(B, B)": "tuple(array, array)",
    "snp.linspace(0, 1, 3, retstep=True)": "tuple(array, array)",
    "snp.meshgrid(V, B)": "list(array, array)",
    "snp.nonzero(B)": "tuple(array)",
    "snp.ogrid[0:2, 0:3]": "list(array, array)",
    "snp.polydiv(V, V[:2])": "tuple(array, array)",
    "snp.polyfit(V, V, 1, cov=True)": "tuple(array, array)",
    "snp.split(V, 2)": "list(array, array)",
    "snp.unique(B, return_counts=True)": "tuple(array, array)",
    "snp.unstack(A[:2])": "tuple(array, array)",
}
"""Expressions, and the types of their results with those of the items."""

NEED_VALUES = frozenset(["snp.nonzero(B)", "snp.unique(B, return_counts=True)"])
"""Expressions that JAX does not trace."""


def describe(result: object) -> str:
    if isinstance(result, (list, tuple)):
        return f"{type(result).__name__}({', '.join(map(describe, result))})"
    if result is None or isinstance(result, bool):
        return "None" if result is None else "bool"
    return "array"


NAMES: dict[str, Any] = {"np": np, "A": A, "S": S, "V": V, "B": B}


@pytest.mark.parametrize("expression", CONTAINERS)
def test_results_have_the_containers_of_the_table(expression: str) -> None:
    names = {**NAMES, "snp": snp, "lax": lax, "scipy": scipy}
    assert describe(eval(expression, names)) == CONTAINERS[expression]


def test_the_table_is_that_of_jax() -> None:
    require("jax")
    import jax
    import jax.scipy.sparse.linalg
    import jax.scipy.stats

    names = {**NAMES, "snp": jax.numpy, "lax": jax.lax, "scipy": jax.scipy}
    found = {}

    def trace() -> tuple[()]:
        for expression in CONTAINERS.keys() - NEED_VALUES:
            found[expression] = describe(eval(expression, names))
        return ()

    jax.eval_shape(trace)
    for expression in NEED_VALUES:
        found[expression] = describe(eval(expression, names))
    assert found == CONTAINERS


def test_compiled_functions_return_the_containers() -> None:
    for f in (lax.linalg.lu, lax.linalg.schur, scipy.linalg.schur):
        assert type(sd.jit(f)(A)) is list


def test_the_second_result_of_gmres_states_whether_the_solution_is_nan() -> None:
    solve = scipy.sparse.linalg.gmres
    found = solve(A, V)[1]
    assert (int(found), str(found.dtype), found.weak_type) == (0, "int32", True)
    assert int(solve(A, V, V * np.nan)[1]) == -1
