"""StableHLO text of JAX programs computes JAX's numbers: one program per operation."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy import linalg as scipy_linalg

from shardir.interpret.interpreter import evaluate
from shardir.ops.opaque import unknown_operations
from shardir.stablehlo.reader import read

pytestmark = pytest.mark.sample(8)

RNG = np.random.default_rng(0)


def draw(*shape: int) -> Any:
    return RNG.uniform(0.2, 0.9, shape).astype("float32")


A, TALL = draw(4, 4), draw(2, 5, 3)
C = (draw(4, 4) + 1j * draw(4, 4)).astype("complex64")
WIDE = (draw(2, 3, 5) + 1j * draw(2, 3, 5)).astype("complex64")
STATE = np.array([5, 6, 7, 0xFFFFFFFE], "uint32")
TIMES_TWO = np.array([3, 0, 3], "int32")
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {}


def program(name: str, function: Callable[..., Any], *args: Any) -> None:
    PROGRAMS[name] = function, args


for _name, _matrix in {"square": A, "tall": TALL, "complex": C, "wide": WIDE}.items():
    program(f"qr of {_name}", jnp.linalg.qr, _matrix)
    program(f"full qr of {_name}", lambda x: jnp.linalg.qr(x, mode="complete"), _matrix)
    _one = _matrix[0] if _matrix.ndim == 3 else _matrix
    program(f"pivoted qr of {_name}", lambda x: scipy_linalg.qr(x, pivoting=True), _one)
    _ones = np.ones((_one.shape[0], 2), _one.dtype)
    for _mode in ("left", "right"):
        program(
            f"product with Q of {_name}, {_mode}",
            lambda x, y, mode=_mode: scipy_linalg.qr_multiply(
                x, y[: min(x.shape)] if mode == "left" else y.T, mode=mode
            ),
            _one,
            _ones,
        )
for _name, _matrix in {"square": A, "complex": C, "two": np.stack([A, A.T])}.items():
    program(f"Hessenberg form of {_name}", lax.linalg.hessenberg, _matrix)
    _hermitian = _matrix + np.conj(np.swapaxes(_matrix, -1, -2))
    program(f"tridiagonal form of {_name}", lax.linalg.tridiagonal, _hermitian)
program(
    "tridiagonal systems",
    lambda d, b: lax.linalg.tridiagonal_solve(d, d + 3, d, b),
    draw(3, 5),
    draw(3, 5, 2),
)
for _algorithm in ("RNG_PHILOX", "RNG_THREE_FRY"):
    for _dtype, _shape in {
        "uint32": (2, 5),
        "uint16": (3,),
        "uint8": (4, 4),
        "uint32 alone": (),
    }.items():
        program(
            f"{_algorithm} of {_dtype}",
            partial(
                lax.rng_bit_generator,
                shape=_shape,
                dtype=_dtype.partition(" ")[0],
                algorithm=getattr(lax.RandomAlgorithm, _algorithm),
            ),
            STATE,
        )
program("rbg keys", lambda s: jax.random.normal(jax.random.key(s, impl="rbg"), (3, 5)), np.int32(3))
FAR = np.array([-700, -30, -8, -3, -0.1, 0, 0.2, 5, 8.5, 1e5], "float32")
program("Bessel functions", lambda x: (lax.bessel_i0e(x), lax.bessel_i1e(x)), FAR)
program(
    "zeta",
    lax.zeta,
    np.array([2, 3.5, 1, 0.5, 2, 30, 3, 2, 4, 2.5], "float32"),
    np.array([1, 0.5, 1, 1, 0, 2, -1.5, 1e4, -2, -1.5], "float32"),
)
program(
    "polygamma",
    lax.polygamma,
    np.array([0, 1, 2, 3, 10, 1.5, -1, 1], "float32"),
    np.array([0.5, 0.5, 2, 100, 1.5, 1, 1, -1.5], "float32"),
)
program(
    "the largest, approximately",
    lambda x: (
        lax.approx_max_k(x, 2),
        lax.approx_min_k(x, 3),
        lax.approx_max_k(x, 2, reduction_dimension=0),
    ),
    draw(3, 5),
)
program("updates by a function", lambda x, i: x.at[i].apply(lambda y: y * 2 + 1), A, TIMES_TWO)
program(
    "unique updates by a function",
    lambda x, i: x.at[i].apply(jnp.sin, unique_indices=True),
    A,
    TIMES_TWO[:2],
)
program(
    "updates out of bounds",
    lambda x, i: x.at[i].apply(lambda y: y * 2),
    A,
    np.array([3, 7, 3], "int32"),
)
program(
    "updates in windows",
    lambda x, i: x.at[i, 1:3].apply(lambda y: y * 2 + 1),
    A,
    np.array([[3, 0], [1, 1]], "int32"),
)
program(
    "updates in a batch",
    jax.vmap(lambda x, i: x.at[i].apply(lambda y: y * 2 + 1)),
    A,
    np.array([[3, 0, 3], [1, 1, 1], [0, 1, 2], [3, 3, 9]], "int32"),
)
program(
    "updates of bools",
    lambda x, i: (x.at[i].min(False), x.at[i].max(True)),
    np.array([True, False, True, True]),
    TIMES_TWO,
)
program("bytes", lambda x: lax.bitcast_convert_type(x, "uint8"), A)


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_have_the_numbers_of_jax(name: str) -> None:
    function, args = PROGRAMS[name]
    traced = jax.jit(function, keep_unused=True).trace(*args)
    module = read(traced.lower(lowering_platforms=("cpu",)).as_text())
    assert unknown_operations(module) == ()
    found = evaluate(module.main, list(args))
    for a, b in zip(found, jax.tree.leaves(jax.jit(function)(*args)), strict=True):
        first, second = np.asarray(a), np.asarray(b)
        assert (first.shape, first.dtype) == (second.shape, second.dtype)
        wide = np.complex128 if second.dtype.kind == "c" else np.float64
        np.testing.assert_allclose(first.astype(wide), second.astype(wide), rtol=2e-4, atol=2e-5)


RAGGED = """
func.func @main(%x: tensor<5x3xf32>, %y: tensor<{y}xf32>, %n: tensor<2xi32>) -> tensor<{r}xf32> {{
  %0 = "chlo.ragged_dot"(%x, %y, %n) <{{precision_config = [#chlo<precision DEFAULT>],
    ragged_dot_dimension_numbers = #chlo.ragged_dot<lhs_contracting_dimensions = [{left}],
    rhs_contracting_dimensions = [{right}], lhs_ragged_dimensions = [0],
    rhs_group_dimensions = [{group}]>}}>
    : (tensor<5x3xf32>, tensor<{y}xf32>, tensor<2xi32>) -> tensor<{r}xf32>
  return %0 : tensor<{r}xf32>
}}
"""


def test_products_of_groups_of_rows() -> None:
    x, sizes = draw(5, 3), np.array([2, 3], "int32")
    matrices, other = draw(2, 3, 4), draw(5, 4)
    text = RAGGED.format(y="2x3x4", r="5x4", left=1, right=1, group=0)
    (found,) = evaluate(read(text).main, [x, matrices, sizes])
    expected = np.concatenate([x[:2] @ matrices[0], x[2:] @ matrices[1]])
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    text = RAGGED.format(y="5x4", r="2x3x4", left=0, right=0, group="")
    (found,) = evaluate(read(text).main, [x, other, sizes])
    expected = np.stack([x[:2].T @ other[:2], x[2:].T @ other[2:]])
    np.testing.assert_allclose(found, expected, rtol=1e-5)
