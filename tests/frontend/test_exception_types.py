"""Exceptions are subclasses of those that code written for NumPy or JAX catches."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir import lax, random
from shardir.errors import ShardirError
from shardir.sharding import NamedSharding, PartitionSpec as P

ONES = np.ones((2, 3), "float32")


def leaked() -> Any:
    kept: list[Any] = []
    sd.jit(lambda x: kept.append(x))(1.0)
    return kept[0] + 1


def misplaced() -> Any:
    mesh = sd.make_mesh((4, 2), ("x", "y"))
    kind = sd.ShapeDtypeStruct((8, 4), np.float32, sharding=NamedSharding(mesh, P("x")))
    compiled = sd.jit(lambda x: x * 2).lower(kind).compile()
    return compiled(sd.device_put(np.ones((8, 4), "float32"), NamedSharding(mesh, P("y"))))


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (TypeError, lambda: snp.ones(3) @ snp.ones(4)),
        (ValueError, lambda: snp.ones(3) @ snp.ones(4)),
        (TypeError, lambda: snp.zeros(-1)),
        (ValueError, lambda: snp.concatenate([])),
        (ValueError, lambda: snp.stack([snp.ones(3), snp.ones(2)])),
        (ValueError, lambda: snp.split(snp.ones(7), 3)),
        (ValueError, lambda: snp.broadcast_to(snp.ones(3), (2, 4))),
        (ValueError, lambda: snp.array([[1, 2], [3]])),
        (ValueError, lambda: snp.einsum("ijk->i", ONES)),
        (TypeError, lambda: snp.arange(3)[1.5]),
        (ValueError, lambda: snp.take(snp.ones(3), np.array([0.5]))),
        (IndexError, lambda: sd.jit(lambda x: x[x > 2])(ONES)),
        (TypeError, lambda: sd.jit(lambda x: x[x > 2])(ONES)),
        (TypeError, leaked),
        (ValueError, misplaced),
        (RuntimeError, lambda: lax.with_sharding_constraint(ONES, P("x"))),
        (RuntimeError, lambda: sd.jit(lambda x: x, in_shardings=P("x"))(ONES)),
        (ValueError, lambda: sd.jit(lambda x: x, static_argnums=3)(ONES)),
        (ValueError, lambda: sd.device_put(ONES, "cpu")),
        (ValueError, lambda: sd.vjp(snp.sin, ONES)[1](np.ones(4, "float32"))),
        (ValueError, lambda: sd.jvp(snp.sin, (ONES,), (np.ones(4, "float32"),))),
        (ValueError, lambda: sd.grad(lambda x: lax.while_loop(lambda c: c < 9, snp.exp, x))(1.0)),
        (ValueError, lambda: lax.scan(lambda c, x: (c, c), 0.0, None)),
        (ValueError, lambda: lax.switch(1, [], 2.0)),
        (TypeError, lambda: random.normal(np.zeros(3), (3,))),
    ],
)
def test_an_exception_has_the_expected_base_class(
    kind: type[Exception], wrong: Callable[[], Any]
) -> None:
    with pytest.raises(kind) as caught:
        wrong()
    assert isinstance(caught.value, ShardirError)


@pytest.mark.parametrize("value", [[3], {"a": 1}, np.ones(3)])
@pytest.mark.parametrize(
    "transform",
    [
        lambda f: sd.jit(f, static_argnums=1),
        lambda f: sd.pmap(f, static_broadcasted_argnums=1),
    ],
)
def test_an_unhashable_static_argument_is_an_error(transform: Any, value: Any) -> None:
    with pytest.raises(ValueError, match="which cannot be hashed; pass a tuple"):
        transform(lambda x, n: x)(np.ones((8, 2), "float32"), value)
