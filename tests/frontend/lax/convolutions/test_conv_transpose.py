"""Transposed convolutions agree with JAX."""

from itertools import product
from typing import Any

import jax
import numpy as np
import pytest

import shardir as sd
from shardir import lax
from shardir.errors import OperationTypeError

RNG = np.random.default_rng(0)


def normal(*shape: int) -> Any:
    return RNG.normal(size=shape).astype("f")


CASES = [
    ((5,), (3,), (2,), None, {}),
    ((4, 5), (3, 2), (2, 1), None, {}),
    ((4, 5), (2, 3), (1, 3), (2, 1), {}),
    ((4, 5), (3, 3), (2, 2), (1, 2), {"dimension_numbers": ("NCHW", "OIHW", "NCHW")}),
    ((3,), (2,), (4,), None, {}),
]
PADDINGS = ["SAME", "VALID", "explicit", "consistent"]


@pytest.mark.sample(3)
@pytest.mark.parametrize(("case", "padding"), [*product(range(len(CASES)), PADDINGS)])
def test_results_agree_with_jax(case: int, padding: str) -> None:
    turned = (case + PADDINGS.index(padding)) % 2 == 0
    sizes, window, strides, dilation, more = CASES[case]
    first = "dimension_numbers" in more
    x = normal(2, 3, *sizes) if first else normal(2, *sizes, 3)
    into, out = (4, 3) if turned else (3, 4)
    w = normal(out, into, *window) if first else normal(*window, into, out)
    options: dict[str, Any] = {"rhs_dilation": dilation, "transpose_kernel": turned, **more}
    pads: Any = padding if padding.isupper() else [(1, 0)] * len(sizes)
    if padding == "consistent":
        options["use_consistent_padding"] = True
    found = lax.conv_transpose(x, w, strides, pads, **options)
    expected = jax.lax.conv_transpose(x, w, strides, pads, **options)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_gradients_agree_with_jax() -> None:
    x, w = normal(1, 4, 4, 2), normal(3, 3, 2, 2)

    def loss(lib: Any) -> Any:
        return lambda w: (lib.lax.conv_transpose(x, w, (2, 2), "SAME") ** 2).sum()

    found, expected = sd.grad(loss(sd))(w), jax.grad(loss(jax))(w)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_shapes_without_execution(padding: str) -> None:
    for (sizes, window, strides, _, _), x in zip(CASES, ("H", "HW", "HW", "HW", "H"), strict=True):
        numbers = (f"N{x}C", f"{x}IO", f"N{x}C")
        lhs, rhs = (-1, *sizes, 3), (*window, 3, 4)
        for name in ("conv_general_shape_tuple", "conv_transpose_shape_tuple"):
            found = getattr(lax, name)(lhs, rhs, strides, padding, numbers)
            assert found == getattr(jax.lax, name)(lhs, rhs, strides, padding, numbers)
        pads = lax.padtype_to_pads(sizes, window, strides, padding)
        found = lax.reduce_window_shape_tuple(sizes, window, strides, padding)
        assert found == jax.lax.reduce_window_shape_tuple(sizes, window, strides, pads)
        assert lax.conv_general_permutations(numbers) == tuple(
            map(tuple, jax.lax.conv_general_permutations(numbers))
        )
    given: Any = (2, 3, 8, 9), (4, 3, 3, 3), (1, 2), [(1, 1), (0, 2)]
    assert lax.conv_shape_tuple(*given) == jax.lax.conv_shape_tuple(*given)


def test_invalid_arguments_are_errors() -> None:
    with pytest.raises(OperationTypeError) as caught:
        lax.conv_transpose(normal(1, 4, 2), normal(3, 2, 2), (2,), "FULL")
    assert str(caught.value).startswith(
        "padding 'FULL' of conv_transpose is unknown; it is 'SAME', 'VALID' or pairs\n"
    )
    with pytest.raises(OperationTypeError) as caught:
        lax.conv_transpose(np.ones((1,) * 6), np.ones((1,) * 6), (1,) * 4, "SAME")
    assert str(caught.value).startswith(
        "conv_transpose of rank 6 needs dimension_numbers; give them\n"
    )
