"""Hessenberg, tridiagonal and Schur forms: defining equations, and agreement with JAX."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardir as sd
from shardir import numpy as snp
from shardir.errors import ShardirError
from shardir.frontend.config import config
from shardir.interpret.interpreter import evaluate
from shardir.lax import linalg as lax_linalg
from shardir.scipy import linalg
from tests.error_assertions import first_line
from tests.frontend.numpy.linear_algebra.random_matrices import Matrices
from tests.namespace import close, trace
from tests.optional_dependencies import require

pytestmark = pytest.mark.sample(3)

DRAWN = Matrices(47)
normal, plane = DRAWN.normal, DRAWN.complex_normal
SHAPES = [(5, 5), (2, 4, 4), (2, 2), (1, 1), (0, 0)]


def complex_schur(x: Any) -> tuple[Any, Any]:
    form, basis = linalg.schur(x)
    return linalg.rsf2csf(form, basis)


def adjoint(x: Any) -> Any:
    return np.swapaxes(np.conj(x), -1, -2)


@pytest.mark.parametrize("make", [normal, plane])
@pytest.mark.parametrize("shape", SHAPES)
def test_packed_forms_are_those_of_jax(make: Any, shape: tuple[int, ...]) -> None:
    require("jax")
    from jax.lax import linalg as theirs

    x = make(*shape)
    for name, options in (
        ("hessenberg", {}),
        ("tridiagonal", {"lower": True}),
        ("tridiagonal", {"lower": False}),
    ):
        if not x.size:
            continue
        given = x if name == "hessenberg" else x + adjoint(x)
        found = getattr(lax_linalg, name)(given, **options)
        expected = getattr(theirs, name)(given, **options)
        assert len(found) == len(expected)
        for ours, other in zip(found, expected, strict=True):
            assert ours.dtype == other.dtype
            close(np.asarray(ours), np.asarray(other), 1e-4)


@pytest.mark.parametrize("make", [normal, plane])
@pytest.mark.parametrize("shape", SHAPES)
def test_forms_fulfill_their_equations(make: Any, shape: tuple[int, ...]) -> None:
    x, eye = make(*shape), np.eye(shape[-1])
    form, q = (np.asarray(each) for each in linalg.hessenberg(x, calc_q=True))
    close(q @ form @ adjoint(q), x, 1e-4)
    close(adjoint(q) @ q, np.broadcast_to(eye, shape), 1e-4)
    np.testing.assert_array_equal(np.tril(form, -2), np.zeros(shape))
    np.testing.assert_array_equal(linalg.hessenberg(x), form)
    for output in ("real", "complex"):
        form, z = (np.asarray(each) for each in linalg.schur(x, output))
        assert form.dtype == (x.dtype if output == "real" else np.complex64)
        close(z @ form @ adjoint(z), x, 1e-4)
        close(adjoint(z) @ z, np.broadcast_to(eye, shape), 1e-4)
        np.testing.assert_array_equal(np.tril(form, -2 + (form.dtype.kind == "c")), 0 * form)
        close(np.asarray(lax_linalg.schur(x, compute_schur_vectors=False)[0]),
              np.asarray(lax_linalg.schur(x)[0]), 1e-6)  # fmt: skip
    form, z = (np.asarray(each) for each in complex_schur(x))
    close(z @ form @ adjoint(z), x, 1e-4)
    np.testing.assert_array_equal(np.tril(form, -1), 0 * form)


@pytest.mark.parametrize("make", [normal, plane])
def test_the_reference_finds_the_same_form(make: Any) -> None:
    """LAPACK and the deflation of the interpreter agree except for signs and phases."""
    x = make(3, 5, 5)
    traced, _ = trace(lambda x: lax_linalg.schur(x), x)
    form, z = evaluate(traced.function, [x])
    close(z @ form @ adjoint(z), x, 1e-4)
    np.testing.assert_array_equal(np.tril(form, -2 + (x.dtype.kind == "c")), 0 * form)
    found = np.asarray(lax_linalg.schur(x, compute_schur_vectors=False)[0])
    close(np.diagonal(form, 0, -2, -1), np.diagonal(found, 0, -2, -1), 1e-3)
    infinite = np.full((2, 2), np.inf, x.dtype)
    assert np.isnan(np.asarray(lax_linalg.schur(infinite)[0])).all()


@pytest.mark.sample(8)
@pytest.mark.parametrize("make", [normal, plane])
@pytest.mark.parametrize("shape", [(4, 3), (3, 3), (3, 5), (2, 4, 3)])
@pytest.mark.parametrize("mode", ["left", "right"])
@pytest.mark.parametrize("is_vector", [False, True])
@pytest.mark.parametrize("conjugate", [False, True])
def test_products_with_q_are_those_of_jax(
    make: Any, shape: tuple[int, ...], mode: str, is_vector: bool, conjugate: bool
) -> None:
    require("jax")
    import jax.scipy.linalg

    x = make(*shape)
    *batch, rows, columns = shape
    count = min(rows, columns)
    length = count if mode == "left" else rows
    matrix = (length, 2) if mode == "left" else (2, length)
    c = make(length) if is_vector else make(*batch, *matrix)
    found = linalg.qr_multiply(x, c, mode, conjugate=conjugate)
    expected = jax.scipy.linalg.qr_multiply(x, c, mode, conjugate=conjugate)
    for ours, other in zip(found, expected, strict=True):
        close(np.asarray(ours), np.asarray(other), 1e-4)


@pytest.mark.parametrize("make", [normal, plane])
@pytest.mark.parametrize("shape", [(4, 3), (3, 3), (3, 5), (2, 4, 3)])
def test_products_with_reflectors_are_those_of_jax(make: Any, shape: tuple[int, ...]) -> None:
    require("jax")
    import jax.numpy
    from jax.lax import linalg as theirs

    x = make(*shape)
    *batch, rows, _ = shape
    packed, taus = jax.numpy.linalg.qr(x, mode="raw")
    a, scales = np.swapaxes(np.asarray(packed), -1, -2), np.asarray(taus)
    for left in (True, False):
        c = make(*batch, *((rows, 2) if left else (2, rows)))
        for transpose in (False, True):
            options: Any = {"left": left, "transpose": transpose}
            close(
                np.asarray(lax_linalg.ormqr(a, scales, c, **options)),
                np.asarray(theirs.ormqr(a, scales, c, **options)),
                1e-4,
            )


@pytest.mark.parametrize("make", [normal, plane])
def test_functions_of_matrices(make: Any) -> None:
    x = make(4, 4)
    close(np.asarray(linalg.funm(x, snp.exp)), np.asarray(linalg.expm(x)), 1e-2)
    squared, error = linalg.funm(x, lambda values: values**2, disp=False)
    close(np.asarray(squared), x @ x, 1e-3)
    assert 0 < float(error) < 1e-3
    equal, error = linalg.funm(np.eye(3), snp.exp, disp=False)
    close(np.asarray(equal), np.e * np.eye(3), 1e-5)
    require("jax")  # It installs SciPy.
    import scipy.linalg

    with config(enable_x64=True):
        wide = x.astype(np.result_type(x, np.float64))
        found = linalg.funm(wide, snp.sin, disp=False)
        expected = scipy.linalg.funm(wide, np.sin, disp=False)
        np.testing.assert_allclose(found[0], expected[0], 1e-8, 1e-10)
        np.testing.assert_allclose(found[1], expected[1], 0.5)


def test_transformations() -> None:
    x = normal(8, 3, 3)
    values: Any = sd.jit(sd.vmap(lambda x: linalg.schur(x)[0]))(x)
    np.testing.assert_allclose(values, linalg.schur(x)[0], 1e-4, 1e-5)
    with sd.cpu_devices(8):
        sharding = sd.NamedSharding(sd.make_mesh((8,), ("i",)), sd.P("i"))
        placed = sd.device_put(x, sharding)
        for f in (lambda x: linalg.schur(x), lambda x: linalg.hessenberg(x, calc_q=True)):
            program = sd.jit(f).lower(placed).compile()
            assert program.collectives() == []
            for ours, other in zip(sd.jit(f)(placed), f(x), strict=True):
                np.testing.assert_allclose(ours, other, 1e-4, 1e-5)
    direction = normal(4, 4)

    def total(x: Any) -> Any:
        form, q = linalg.hessenberg(x, calc_q=True)
        return (snp.sin(form) * q).sum()

    with config(enable_x64=True):
        point, direction = normal(4, 4).astype(float), direction.astype(float)
        slope = (np.asarray(sd.grad(total)(point)) * direction).sum()
        change = (total(point + 1e-6 * direction) - total(point - 1e-6 * direction)) / 2e-6
        np.testing.assert_allclose(slope, change, 1e-5)


X = normal(3, 4)
FAULTS: list[tuple[Callable[[], Any], str]] = [
    (lambda: lax_linalg.hessenberg(X), "hessenberg takes square matrices, got shape (3, 4)"),
    (lambda: lax_linalg.tridiagonal(X), "tridiagonal takes square matrices, got shape (3, 4)"),
    (lambda: lax_linalg.schur(X), "schur takes square matrices, got shape (3, 4)"),
    (lambda: lax_linalg.schur(X[:, :3], sort_eig_vals=True),
     "schur does not sort eigenvalues; leave out sort_eig_vals and select_callable"),
    (lambda: lax_linalg.ormqr(X, X[0, :3], X[:2]),
     "ormqr takes reflections (m, n), at most min(m, n) scales, and c with m rows, all with the "
     "same batch dimensions; got shapes (3, 4), (3,) and (2, 4)"),
    (lambda: linalg.schur(X, "imaginary"),
     "the output of schur is 'imaginary'; it is 'real' or 'complex'"),
    (lambda: linalg.rsf2csf(X[:, :3], X[:2, :2]),
     "rsf2csf takes matrices of one size, got shapes (3, 3) and (2, 2)"),
    (lambda: linalg.qr_multiply(X, X, "middle"),
     "the mode of qr_multiply is 'middle'; it is 'left' or 'right'"),
    (lambda: linalg.qr_multiply(X, X),
     "qr_multiply of (3, 4), whose Q has 3 rows and 3 columns, takes on the right a matrix with 3 "
     "columns, got 4"),
    (lambda: linalg.qr_multiply(X, X, pivoting=True),
     "qr does not pivot columns; use svd for rank-deficient matrices"),
    (lambda: linalg.funm(normal(2, 3, 3), snp.exp),
     "funm takes one square matrix, got shape (2, 3, 3)"),
    (lambda: linalg.funm(X[:, :3], lambda x: x[0]),
     "the function of funm returned shape () for 3 eigenvalues; it returns one number for each"),
    (lambda: sd.grad(lambda x: linalg.schur(x)[0].sum())(X[:, :3]),
     "%0 = schur has no derivative; define the derivative of a function that calls it with "
     "custom_jvp or custom_vjp"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), FAULTS)
def test_wrong_arguments(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ShardirError) as error:
        call()
    assert first_line(error) == message


@pytest.mark.parametrize("make", [normal, plane])
@pytest.mark.parametrize("magnitude", [1e-25, 1e20])
def test_forms_of_small_and_large_matrices(make: Any, magnitude: float) -> None:
    """The squares of the elements are not numbers of f32."""
    x = make(2, 4, 4)
    scaled = (x * magnitude).astype(x.dtype)
    for form, q in (
        linalg.hessenberg(scaled, calc_q=True),
        linalg.schur(scaled),
        complex_schur(scaled),
    ):
        form, q = np.asarray(form) / np.float32(magnitude), np.asarray(q)
        close(q @ form @ adjoint(q), x, 1e-4)
        close(adjoint(q) @ q, np.broadcast_to(np.eye(4), x.shape), 1e-4)
    x = x + adjoint(x)
    for lower in (True, False):
        expected = lax_linalg.tridiagonal(x, lower=lower)
        found = lax_linalg.tridiagonal((x * magnitude).astype(x.dtype), lower=lower)
        for ours, other in zip(found[1:3], expected[1:3], strict=True):
            close(np.asarray(ours) / np.float32(magnitude), np.asarray(other), 1e-4)
        close(np.asarray(found[3]), np.asarray(expected[3]), 1e-4)
