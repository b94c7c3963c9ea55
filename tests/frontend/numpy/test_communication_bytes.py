"""The bytes that each of 8 devices sends for a function of one sharded operand.

The expected bytes are those of the collectives in JAX's compiled program, of one gathered vector of
16 KiB, and for quantiles of one bool that states whether there is a NaN.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir import lax
from shardir.sharding import NamedSharding, PartitionSpec as P

pytestmark = pytest.mark.sample(4)

VECTOR = np.random.default_rng(3).standard_normal(4096).astype(np.float32)
LEVELS = np.array([0.1, 0.5, 0.77], np.float32)
GATHERED = 4096 * 4 * 7 // 8
ONE_BOOL = 2

CASES: dict[str, tuple[Callable[..., Any], Any, int]] = {
    "roll": (lambda p, x, k: p.roll(x, k), 5, GATHERED),
    "roll of rows": (lambda p, x, k: p.roll(x.reshape(512, 8), k, 0), -3, GATHERED),
    "levels": (lambda p, x, q: p.quantile(x, q), LEVELS, GATHERED + ONE_BOOL),
    "two levels": (lambda p, x, q: p.quantile(x, q), LEVELS[:2], GATHERED + ONE_BOOL),
    "known levels": (lambda p, x, q: p.quantile(x, LEVELS), 0, GATHERED),
    "nanmedian": (lambda p, x, k: p.nanmedian(x), 0, GATHERED),
    "nanmedian of rows": (lambda p, x, k: p.nanmedian(x.reshape(512, 8), 0), 0, GATHERED * 9 // 8),
    "nanquantile": (lambda p, x, k: p.nanquantile(x, 0.3), 0, GATHERED),
    "nanquantile, nearest": (lambda p, x, k: p.nanquantile(x, 0.3, method="nearest"), 0, GATHERED),
    "nanpercentile": (lambda p, x, q: p.nanpercentile(x, 100 * LEVELS), 0, GATHERED),
    "level": (lambda p, x, q: p.quantile(x, q), LEVELS[0], GATHERED + ONE_BOOL),
    "integer division": (lambda p, x, k: x.astype("i4") // 3, 0, 0),
}


@pytest.mark.parametrize("name", CASES)
def test_functions_send_no_more_bytes_than_in_jax(name: str) -> None:
    function, other, sent = CASES[name]
    mesh = sd.make_mesh((8,), ("x",))
    x = sd.device_put(VECTOR, NamedSharding(mesh, P("x")))
    jitted = sd.jit(lambda x, k: function(snp, x, k))
    assert jitted.lower(x, other).compile().communication().total.sent <= sent
    expected = function(np, VECTOR, other)
    np.testing.assert_allclose(jitted(x, other), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("function", ["quantile", "nanquantile"])
def test_a_long_line_is_gathered_once_for_a_traced_level(function: str) -> None:
    """The padding with which its element is selected is computed on every device."""
    line = np.random.default_rng(3).standard_normal(1 << 16).astype(np.float32)
    mesh = sd.make_mesh((8,), ("x",))
    x = sd.device_put(line, NamedSharding(mesh, P("x")))
    jitted = sd.jit(lambda x, q: getattr(snp, function)(x, q))
    sent = jitted.lower(x, LEVELS[0]).compile().communication().total.sent
    assert sent <= line.nbytes * 7 // 8 + 32  # a few reductions of one number each
    np.testing.assert_allclose(jitted(x, LEVELS[0]), np.quantile(line, LEVELS[0]), rtol=1e-6)


DIAGONALS = {"diagonal": (0, 64), "above": (1, 184), "below": (-2, 184), "far below": (-13, 184)}
"""Number of each diagonal, and how many bytes are sent at most, of 448 for the matrix."""


@pytest.mark.parametrize("spec", [P("y", "x"), P("x", "y"), P(None, "x"), P(None, ("y", "x"))])
@pytest.mark.parametrize("name", DIAGONALS)
@pytest.mark.parametrize("shape", [(16, 16), (16, 8), (3, 16, 16)])
def test_a_diagonal_of_sharded_columns_is_sent_and_not_the_matrix(
    name: str, spec: P, shape: tuple[int, ...]
) -> None:
    offset, sent = DIAGONALS[name]
    batch = shape[:-2]
    matrix = np.random.default_rng(4).standard_normal(shape).astype(np.float32)
    matrix[..., 0, 0], matrix[..., 2, 0], matrix[..., 1, 1] = -0.0, -0.0, np.nan
    mesh = sd.make_mesh((4, 2), ("x", "y"))
    x = sd.device_put(matrix, NamedSharding(mesh, P(*[None] * len(batch), *spec)))
    jitted = sd.jit(lambda x: snp.diagonal(x, offset, -2, -1))
    found, expected = np.asarray(jitted(x)), np.diagonal(matrix, offset, -2, -1)
    np.testing.assert_array_equal(found.view(np.int32), expected.view(np.int32))
    assert jitted.lower(x).compile().communication().total.sent <= sent * (*batch, 1)[0]


SCANS: dict[str, tuple[tuple[int, ...], P, Callable[..., Any], int, int]] = {
    "matrices": ((64, 4, 4), P("x"), snp.matmul, 0, 5440),
    "rows of matrices": ((64, 8, 8), P(None, "x"), snp.matmul, 0, 26880),
    "products": ((64, 32), P("x"), snp.multiply, 0, 4496),
    "sums along dimension 1": ((64, 32), P(None, "x"), snp.add, 1, 6720),
}


@pytest.mark.parametrize("name", SCANS)
def test_associative_scans_send_no_more_bytes_than_in_jax(name: str) -> None:
    shape, spec, combine, axis, sent = SCANS[name]
    mesh = sd.make_mesh((8,), ("x",))
    x = sd.device_put(np.ones(shape, np.float32), NamedSharding(mesh, spec))
    jitted = sd.jit(lambda x: lax.associative_scan(combine, x, axis=axis))
    assert jitted.lower(x).compile().communication().total.sent <= sent
