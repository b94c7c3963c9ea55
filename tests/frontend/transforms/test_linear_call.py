"""`linear_call`: linear functions with a transpose of their own."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import shardir as sd
from shardir import numpy as snp
from shardir.custom_derivatives import linear_call
from shardir.errors import DifferentiateError
from shardir.frontend.errors import StructureError
from tests.error_assertions import assert_raises_exactly, raw

X = np.array([1, 2, 3], np.float32)


def divide(divisor: Any, x: Any) -> Any:
    return x / divisor


def add_quotient(x: Any, divisor: Any) -> Any:
    return x + linear_call(divide, divide, divisor, x)


def transposed(f: Callable[[Any], Any], like: Any) -> Callable[[Any], Any]:
    return lambda y: sd.linear_transpose(f, like)(y)[0]


def test_values_and_derivatives_are_those_of_the_function() -> None:
    x, d = snp.arange(3.0), snp.arange(1.0, 4.0)
    np.testing.assert_allclose(add_quotient(x, d), x + x / d)
    np.testing.assert_allclose(transposed(partial(add_quotient, divisor=d), x)(x), x + x / d)
    for transform in (sd.vmap, lambda f: f):
        for by in (0, 1):
            expected = (1 + 1 / d, -x / d**2)[by]
            found = transform(sd.grad(lambda x, d: add_quotient(x, d).sum(), by))(x, d)
            np.testing.assert_allclose(found, expected, 1e-6)
    _, tangent = sd.jvp(add_quotient, (x, d), (x, d))
    np.testing.assert_allclose(tangent, x + x / d - x / d, 1e-6, 1e-6)
    mixed = sd.grad(sd.grad(lambda x, d: add_quotient(x, d) ** 2), 1)(9.0, 3.0)
    np.testing.assert_allclose(mixed, 4 * 9.0 * (1 + 1 / 3) * -1 / 9, 1e-6)


def test_reverse_mode_calls_the_transpose() -> None:
    def identity(x: Any) -> Any:
        return linear_call(lambda _, x: x, lambda _, y: y * 0 + 7, (), x)

    one = 1.0
    for depth, expected in enumerate((1.0, 7.0, 1.0, 7.0)):
        f: Callable[[Any], Any] = identity
        for _ in range(depth):
            f = transposed(f, one)
        assert float(f(one)) == expected
    assert float(sd.grad(identity)(one)) == 7
    assert float(sd.jit(sd.vmap(sd.grad(identity)))(snp.ones(2))[0]) == 7
    assert float(sd.jvp(identity, (one,), (one,))[1]) == 1


def test_trees_and_shards() -> None:
    def forth(scale: Any, x: Any) -> Any:
        return {"a": x[0] * scale, "b": x[1].sum() * scale}

    def back(scale: Any, y: Any) -> Any:
        return [y["a"] * scale, snp.full(8, y["b"] * scale)]

    with sd.cpu_devices(8):
        sharding = sd.NamedSharding(sd.make_mesh((8,), ("i",)), sd.P("i"))
        x = [snp.float32(2), sd.device_put(snp.arange(8.0), sharding)]
        made = sd.jit(sd.grad(lambda x: sum(linear_call(forth, back, 3.0, x).values())))(x)
        assert float(made[0]) == 3
        np.testing.assert_array_equal(made[1], np.full(8, 3))


def test_wrong_transposes() -> None:
    wrong = sd.grad(lambda x: linear_call(lambda _, x: x, lambda _, y: (y, y), (), x))
    assert_raises_exactly(
        lambda: wrong(1.0),
        DifferentiateError,
        "the backward rule of lambda returned a gradient in the containers (*, *); return a "
        "gradient in those of its argument, *",
    )
    assert_raises_exactly(
        lambda: linear_call(raw(3), raw(3), (), 1.0),
        StructureError,
        "linear_call takes a function, got 3",
    )


def test_cotangents_are_weak_where_the_example_arguments_are() -> None:
    weak, strong = sd.linear_transpose(lambda x, y: x * 3.0 + y, 1.0, np.ones(3, "f"))(X)
    assert (weak.weak_type, strong.weak_type) == (True, False)
    assert float(weak) == 18
    (inside,) = sd.jit(lambda y: sd.linear_transpose(lambda x: x * 3.0, 1.0)(y))(np.float32(2))
    assert inside.weak_type
    assert float(inside) == 6
