"""`lax.scaled_dot` and `nn.scaled_matmul`: products of operands with block scales."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardir as sd
from shardir import lax, nn
from shardir.errors import OperationTypeError
from tests.optional_dependencies import require

RNG = np.random.default_rng(0)


def operands(dtype: str, scale: str, batch: tuple[int, ...] = ()) -> tuple[Any, ...]:
    x = sd.numpy.asarray(RNG.standard_normal((*batch, 8, 64)), dtype)
    y = sd.numpy.asarray(RNG.standard_normal((*batch, 64, 16)), dtype)
    scales = (
        sd.numpy.asarray(2.0 ** RNG.integers(-2, 3, shape), scale)
        for shape in ((*batch, 8, 2), (*batch, 4, 16))
    )
    return (x, y, *scales)


@pytest.mark.parametrize(
    ("dtype", "scale", "batch", "result"),
    [
        ("float8_e4m3fn", "float8_e8m0fnu", (2,), None),
        ("float8_e5m2", "float8_e8m0fnu", (), "float32"),
        ("float4_e2m1fn", "float8_e4m3fn", (2, 3), "float32"),
        ("bfloat16", "bfloat16", (2,), "bfloat16"),
    ],
)
def test_scaled_dot_agrees_with_jax(
    dtype: str, scale: str, batch: tuple[int, ...], result: str | None
) -> None:
    require("jax")
    import jax

    x, y, p, q = operands(dtype, scale, batch)

    def compute(lax: Any, x: Any, y: Any, p: Any, q: Any) -> Any:
        return lax.scaled_dot(x, y, lhs_scale=p, rhs_scale=q, preferred_element_type=result)

    made = sd.jit(lambda *args: compute(lax, *args))(x, y, p, q)
    expected = compute(jax.lax, *map(np.asarray, (x, y, p, q)))
    assert made.dtype == expected.dtype
    tolerance = 1e-5 if result == "float32" else 2e-2
    np.testing.assert_allclose(
        np.asarray(made, np.float32), np.asarray(expected, np.float32), tolerance, tolerance
    )


def test_operands_without_scale_are_not_scaled() -> None:
    x, y, _, _ = operands("float8_e4m3fn", "float8_e8m0fnu")
    made = lax.scaled_dot(x, y, preferred_element_type="float32")
    wide = (np.asarray(each, np.float32) for each in (x, y))
    np.testing.assert_allclose(made, np.matmul(*wide), rtol=1e-5)
    numbers = (((0,), (1,)), ((), ()))
    made = lax.scaled_dot(y, x, dimension_numbers=numbers, preferred_element_type="float32")
    wide = (np.asarray(each, np.float32) for each in (x, y))
    np.testing.assert_allclose(made, np.matmul(*wide).T, rtol=1e-5)


def test_scaled_matmul_scales_blocks_of_the_last_dimension() -> None:
    x, y, p, q = operands("float8_e4m3fn", "float8_e8m0fnu", (3,))
    turned, scales = y.swapaxes(1, 2), q.swapaxes(1, 2)
    made = nn.scaled_matmul(x, turned, p, scales)
    wide = [np.asarray(each, np.float32) for each in (x, turned, p, scales)]
    left = wide[0] * np.repeat(wide[2], 32, -1)
    right = wide[1] * np.repeat(wide[3], 16, -1)
    np.testing.assert_allclose(made, np.einsum("bij,bkj->bik", left, right), rtol=1e-5)
    assert nn.scaled_matmul(x, turned, p, scales, "bfloat16").dtype == "bfloat16"


def test_sharded_operands_are_contracted_without_a_gather() -> None:
    x, y, p, q = operands("float8_e4m3fn", "float8_e8m0fnu", (8,))
    mesh = sd.make_mesh((8,), ("x",))
    sharding = sd.NamedSharding(mesh, sd.P("x"))
    placed = [sd.device_put(each, sharding) for each in (x, y, p, q)]
    step = sd.jit(lambda x, y, p, q: lax.scaled_dot(x, y, lhs_scale=p, rhs_scale=q))
    assert step.lower(*placed).compile().collectives() == []
    np.testing.assert_array_equal(step(*placed), step(x, y, p, q))


FAULTS: list[tuple[Callable[[Any, Any], Any], str]] = [
    (lambda x, y: lax.scaled_dot(x[0], y),
     "scaled_dot multiplies matrices, got shapes (4,) and (4, 6); give dimension_numbers, or use "
     "lax.dot"),
    (lambda x, y: lax.scaled_dot(x, y, lhs_scale=y),
     "lhs of scaled_dot has shape (3, 4) and its scale (4, 6); a scale has the size of its "
     "operand, or along a contracted dimension a divisor of it"),
    (lambda x, y: lax.scaled_dot(x, y, rhs_scale=y[:3]),
     "rhs of scaled_dot has shape (4, 6) and its scale (3, 6); a scale has the size of its "
     "operand, or along a contracted dimension a divisor of it"),
    (lambda x, y: nn.scaled_matmul(x, y, x, y),
     "scaled_matmul takes shapes (batch, rows, inner) and (batch, columns, inner), got (3, 4) and "
     "(4, 6)"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), FAULTS)
def test_invalid_calls_are_errors(call: Any, message: str) -> None:
    with pytest.raises(OperationTypeError) as caught:
        call(sd.numpy.ones((3, 4)), sd.numpy.ones((4, 6)))
    assert str(caught.value).split("\n")[0] == message
