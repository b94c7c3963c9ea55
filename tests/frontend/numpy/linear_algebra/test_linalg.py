"""Decompositions and solvers against NumPy, and their derivatives against JAX."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardir as sd
from shardir import numpy as snp
from shardir.errors import DifferentiateError
from shardir.frontend.config import config
from shardir.frontend.errors import ArgumentError, ShapeError
from shardir.sharding import NamedSharding, PartitionSpec
from tests.error_assertions import assert_raises_exactly
from tests.frontend.numpy.linear_algebra.random_matrices import Matrices
from tests.namespace import close, eagerly, run, same

pytestmark = pytest.mark.sample(4)

DRAWN = Matrices(17)
normal, plane, definite = DRAWN.normal, DRAWN.complex_normal, DRAWN.positive_definite


def regular(*shape: int, make: Any = normal) -> Any:
    """Return well-conditioned square matrices."""
    return (make(*shape) + 4 * np.eye(shape[-1])).astype(make(1).dtype)


def both(name: str, *args: Any, **options: Any) -> None:
    """Check `linalg.name` against NumPy, traced and in execution."""
    expected = getattr(np.linalg, name)(*args, **options)
    for way in (run, eagerly):
        same(way(getattr(snp.linalg, name), *args, **options), expected, 1e-3)


@pytest.mark.parametrize("make", [normal, plane])
def test_solve(make: Any) -> None:
    a = regular(2, 4, 4, make=make)
    both("solve", a, make(2, 4, 3))
    both("solve", a[0], make(4))
    both("solve", a, make(4))
    both("inv", a)
    both("slogdet", a)
    both("matrix_power", a / 4, -3)
    both("pinv", make(2, 5, 3))
    for size in (1, 2, 3, 5):
        both("det", regular(2, size, size, make=make) / 2)
        both("slogdet", regular(size, size, make=make))


def test_row_exchanges_determine_the_sign_of_det() -> None:
    turn = np.eye(4, dtype="f")[[1, 0, 3, 2]]
    for rows in (turn, turn[[1, 0, 2, 3]]):
        both("det", rows)
        both("slogdet", rows)


def test_tensorsolve_and_tensorinv() -> None:
    both("tensorinv", normal(4, 6, 8, 3))
    both("tensorinv", normal(8, 4, 2), ind=1)
    both("tensorsolve", normal(2, 3, 6), normal(2, 3))
    both("tensorsolve", normal(6, 2, 3), normal(2, 3), axes=(0,))


@pytest.mark.parametrize("rows", [5, 3, 2])
def test_least_squares(rows: int) -> None:
    a = normal(rows, 3)
    for b in (normal(rows, 2), normal(rows)):
        found, left, rank, values = eagerly(snp.linalg.lstsq, a, b)
        expected = np.linalg.lstsq(a, b)
        close(found, expected[0], 1e-3)
        assert rank == expected[2]
        close(values, expected[3], 1e-4)
        close(left, np.atleast_1d(((b - a @ found) ** 2).sum(0)), 1e-3)


def test_least_squares_of_empty_or_rank_deficient_matrices() -> None:
    a, b = normal(5, 3), normal(5, 2)
    b[1, 0] = np.inf
    found, _, rank, _ = eagerly(snp.linalg.lstsq, a, b)
    assert np.isnan(found[:, 0]).all()
    close(found[:, 1], np.linalg.lstsq(a, b[:, 1])[0], 1e-3)
    a[:, 2] = a[:, 1]
    found, _, rank, _ = eagerly(snp.linalg.lstsq, a, b[:, 1])
    assert rank == 2
    close(found, np.linalg.lstsq(a, b[:, 1])[0], 1e-3)
    a[0, 0] = np.nan
    found, _, rank, values = eagerly(snp.linalg.lstsq, a, b)
    assert rank == 0
    assert np.isnan(found).all()
    assert np.isnan(values).all()


def test_ranks_and_conditions() -> None:
    x = normal(2, 4, 4)
    x[1, 2] = x[1, 0]
    assert run(snp.linalg.matrix_rank, x).tolist() == [4, 3]
    assert run(snp.linalg.matrix_rank, np.zeros((3, 3), "f")) == 0
    assert run(snp.linalg.matrix_rank, np.ones(3, "f")) == 1
    for p in (None, 2, -2, 1, "fro", np.inf):
        both("cond", regular(2, 4, 4), p)


@pytest.mark.parametrize("make", [normal, plane])
def test_decompositions(make: Any) -> None:
    both("cholesky", definite(2, 4, 4, make=make))
    both("cholesky", definite(3, 3, make=make), upper=True)
    for shape in ((2, 5, 3), (3, 3), (3, 5)):
        x = make(*shape)
        size = min(shape[-2:])
        for mode in ("reduced", "complete"):
            q, r = eagerly(snp.linalg.qr, x, mode=mode)
            close(q @ r, x, 1e-4)
            close(np.swapaxes(q.conj(), -1, -2) @ q, np.broadcast_to(np.eye(q.shape[-1]),
                  (*shape[:-2], q.shape[-1], q.shape[-1])), 1e-4)  # fmt: skip
        close(abs(eagerly(snp.linalg.qr, x, mode="r")), abs(np.linalg.qr(x)[1]), 1e-4)
        for full in (True, False):
            u, s, vh = eagerly(snp.linalg.svd, x, full_matrices=full)
            close((u[..., :size] * s[..., None, :]) @ vh[..., :size, :], x, 1e-4)
        close(s, np.linalg.svd(x, compute_uv=False), 1e-4)
        both("svdvals", x)


@pytest.mark.parametrize("make", [normal, plane])
def test_eigenvalues(make: Any) -> None:
    x = definite(2, 4, 4, make=make)
    both("eigvalsh", x)
    values, vectors = eagerly(snp.linalg.eigh, x)
    close(x @ vectors, vectors * values[..., None, :], 1e-3)
    x = make(2, 4, 4)
    values, vectors = eagerly(snp.linalg.eig, x)
    close((x @ vectors), vectors * values[..., None, :], 1e-3)
    assert values.dtype == vectors.dtype == np.complex64
    close(np.sort(eagerly(snp.linalg.eigvals, x)), np.sort(values), 1e-3)


def test_a_hermitian_matrix_has_singular_values_by_its_eigenvalues() -> None:
    x = definite(2, 4, 4) - 3 * np.eye(4, dtype="f")
    u, s, vh = eagerly(snp.linalg.svd, x, hermitian=True)
    close((u * s[..., None, :]) @ vh, x, 1e-4)
    close(s, np.linalg.svd(x, compute_uv=False), 1e-4)
    close(eagerly(snp.linalg.svd, x, compute_uv=False, hermitian=True), s, 1e-4)


@pytest.mark.parametrize("order", ["nuc", 2, -2])
def test_norms_of_singular_values(order: Any) -> None:
    x = normal(3, 4, 5)
    for axis in ((1, 2), (0, 2), (2, 0)):
        both("norm", x, order, axis)
        both("norm", x, order, axis, keepdims=True)


def test_nonexistent_factors_are_nan() -> None:
    bad = np.stack([-np.eye(3), np.eye(3)]).astype("f")
    made = eagerly(snp.linalg.cholesky, bad)
    assert np.isnan(made[0]).any()
    np.testing.assert_array_equal(made[1], bad[1])
    for name in ("svdvals", "eigvalsh", "eigvals"):
        assert np.isnan(eagerly(getattr(snp.linalg, name), np.full((2, 2), np.nan, "f"))).all()


def test_empty_matrices() -> None:
    none = np.zeros((2, 0, 0), "f")
    assert eagerly(snp.linalg.det, none).tolist() == [1, 1]
    assert eagerly(snp.linalg.inv, none).shape == (2, 0, 0)
    assert eagerly(snp.linalg.solve, none, np.zeros((2, 0, 3), "f")).shape == (2, 0, 3)
    assert eagerly(snp.linalg.eigvalsh, none).shape == (2, 0)
    assert [x.shape for x in eagerly(snp.linalg.svd, none[:, :, :0])] == [
        (2, 0, 0),
        (2, 0),
        (2, 0, 0),
    ]


ERRORS: list[tuple[Callable[[Any], Any], type[Exception], str]] = [
    (lambda x: snp.linalg.inv(x), ShapeError,
     "inv takes square matrices, got shape (2, 3)"),
    (lambda x: snp.linalg.svd(x[0]), ShapeError,
     "svd takes matrices, got shape (3,)"),
    (lambda x: snp.linalg.solve(x[:, :2], x.T), ShapeError,
     "solve of 2 equations takes right-hand sides with as many rows, got shape (3, 2)"),
    (lambda x: snp.linalg.qr(x, mode="raw"), ArgumentError,
     "qr has the modes 'reduced', 'complete' and 'r', not 'raw'; JAX's and NumPy's raw factors are "
     "not kept"),
    (lambda x: snp.linalg.eigh(x[:, :2], UPLO="X"), ArgumentError,
     "eigh reads the triangle 'L' or 'U', not 'X'"),
    (lambda x: snp.linalg.lstsq(x, x.T), ShapeError,
     "lstsq takes one row of b for each of a, got shapes (2, 3) and (3, 2)"),
    (lambda x: snp.linalg.tensorinv(x), ShapeError,
     "tensorinv with ind=2 needs equal numbers of elements before and from axis 2 on, got "
     "shape (2, 3)"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "kind", "message"), ERRORS)
def test_invalid_arguments_are_errors(
    call: Callable[[Any], Any], kind: type[Exception], message: str
) -> None:
    assert_raises_exactly(lambda: run(call, normal(2, 3)), kind, message)


def test_derivatives_of_non_unique_factors_are_errors() -> None:
    def last(x: Any) -> Any:
        return snp.linalg.qr(x, mode="complete")[0].sum()

    with pytest.raises(DifferentiateError, match=r"qr of f32\[4, 2\] with full=true has no deriv"):
        sd.grad(last)(normal(4, 2))


ALONG_BATCH: dict[str, Callable[[Any], Any]] = {
    "cholesky": lambda x: snp.linalg.cholesky(x),
    "qr": lambda x: snp.linalg.qr(x),
    "svd": lambda x: snp.linalg.svd(x),
    "eigh": lambda x: snp.linalg.eigh(x),
    "eig": lambda x: snp.linalg.eig(x),
    "inv": lambda x: snp.linalg.inv(x),
    "det": lambda x: snp.linalg.slogdet(x),
    "pinv": lambda x: snp.linalg.pinv(x),
    "solve": lambda x: snp.linalg.solve(x, x),
    "fft": lambda x: snp.fft.rfft2(x),
    "gradient": lambda x: sd.grad(lambda y: snp.linalg.inv(y).sum() + snp.linalg.det(y).sum())(x),
}


@pytest.mark.parametrize("name", ALONG_BATCH)
def test_a_sharded_batch_needs_no_communication(name: str) -> None:
    mesh = sd.make_mesh((8,), ("batch",))
    x = definite(8, 4, 4)
    cut = sd.device_put(x, NamedSharding(mesh, PartitionSpec("batch")))
    fun = sd.jit(ALONG_BATCH[name])
    assert fun.lower(cut).compile().collectives() == []
    for got, expected in zip(sd.tree.leaves(fun(cut)), sd.tree.leaves(fun(x)), strict=True):
        assert got.sharding.spec[0] == "batch"
        np.testing.assert_array_equal(np.asarray(got), np.asarray(expected))


def test_right_hand_sides_may_be_sharded() -> None:
    mesh = sd.make_mesh((8,), ("x",))
    y = sd.device_put(normal(4, 16), NamedSharding(mesh, PartitionSpec(None, "x")))
    solve = sd.jit(snp.linalg.solve)
    a = regular(4, 4)
    np.testing.assert_allclose(
        np.asarray(solve(a, y)), np.linalg.solve(a, np.asarray(y)), rtol=1e-4, atol=1e-4
    )
    kinds = {each.kind for each in solve.lower(a, y).compile().collectives()}
    assert kinds == set()


DERIVATIVES: dict[str, tuple[Callable[[Any, Any], Any], tuple[int, ...]]] = {
    "cholesky": (lambda xp, x: xp.linalg.cholesky(x @ x.mT + xp.eye(4)), (2, 4, 4)),
    "qr": (lambda xp, x: abs(xp.linalg.qr(x)[1]), (2, 4, 3)),
    "svd": (lambda xp, x: xp.linalg.svd(x, full_matrices=False)[0] ** 2, (4, 3)),
    "singular values": (lambda xp, x: xp.linalg.svd(x, compute_uv=False), (2, 4, 3)),
    "eigh": (lambda xp, x: xp.linalg.eigh(x)[1] ** 2, (3, 3)),
    "eigenvalues": (lambda xp, x: abs(xp.linalg.eigvals(x)), (4, 4)),
    "inv": (lambda xp, x: xp.linalg.inv(x), (2, 4, 4)),
    "det": (lambda xp, x: xp.linalg.det(x), (2, 4, 4)),
    "small det": (lambda xp, x: xp.linalg.det(x), (2, 3, 3)),
    "slogdet": (lambda xp, x: xp.linalg.slogdet(x)[1], (2, 4, 4)),
    "pinv": (lambda xp, x: xp.linalg.pinv(x), (5, 3)),
    "lstsq": (lambda xp, x: xp.linalg.lstsq(x, x[:, :2] ** 2)[0], (5, 3)),
    "lstsq values": (lambda xp, x: xp.linalg.lstsq(x, x[:, 0])[3], (3, 5)),
    "solve": (lambda xp, x: xp.linalg.solve(x, x[0, :, :2]), (2, 4, 4)),
    "power": (lambda xp, x: xp.linalg.matrix_power(x, -2), (3, 3)),
    "norm": (lambda xp, x: xp.linalg.norm(x, "nuc"), (3, 4)),
    "fft": (lambda xp, x: abs(xp.fft.rfft(x)) ** 2, (3, 5)),
    "fftn": (lambda xp, x: abs(xp.fft.fftn(x)) ** 2, (3, 5)),
    "irfft": (lambda xp, x: xp.fft.irfft(x, 6), (3, 4)),
}


@pytest.mark.parametrize(
    "x",
    [
        np.diag([1.0, 2, 0, 3]),
        np.diag(np.ones(4), 1),
        np.ones((4, 4)),
        np.zeros((5, 5)),
        normal(5, 4) @ normal(4, 5),
        np.stack([np.diag([0.0, 1, 2, 3]), normal(4, 4)]),
    ],
    ids=["zero pivot", "all pivots zero", "rank 1", "zero", "rank 4", "stack"],
)
def test_cofactors_of_singular_matrices(x: Any) -> None:
    size = x.shape[-1]
    expected = np.zeros(x.shape)
    for i, j in np.ndindex(size, size):
        minor = np.delete(np.delete(x, i, -2), j, -1)
        expected[..., i, j] = (-1) ** (i + j) * np.linalg.det(minor)
    with config(enable_x64=True):
        found = sd.grad(lambda x: snp.linalg.det(x).sum())(np.float64(x))
        moved = sd.jvp(snp.linalg.det, (snp.asarray(x),), (snp.cos(snp.asarray(x)),))[1]
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(
        np.asarray(moved), (expected * np.cos(x)).sum((-2, -1)), rtol=1e-6, atol=1e-12
    )


@pytest.mark.parametrize("name", DERIVATIVES)
def test_gradients_agree_with_jax(name: str) -> None:
    jax = pytest.importorskip("jax")
    fun, shape = DERIVATIVES[name]
    x = np.random.default_rng(3).normal(size=shape)

    def weighed(xp: Any) -> Callable[[Any], Any]:
        def loss(x: Any) -> Any:
            y = fun(xp, x)
            return (y * xp.cos(xp.arange(y.size, dtype="float64")).reshape(y.shape)).sum()

        return loss

    with config(enable_x64=True), jax.enable_x64(True):
        ours = sd.grad(weighed(snp))(x)
        theirs = jax.jit(jax.grad(weighed(jax.numpy)))(x)
        np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), rtol=1e-7, atol=1e-8)
