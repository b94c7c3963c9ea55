"""Functions that transformations return have the name and the signature of the user's function."""

from collections.abc import Callable
from functools import partial
from inspect import signature
from typing import Any

import pytest

import shardir as sd
from shardir.sharding import PartitionSpec as P


def over_one_device(fun: Callable[..., Any]) -> Callable[..., Any]:
    mesh = sd.make_mesh((1,), ("x",))
    return sd.shard_map(fun, mesh=mesh, in_specs=P(), out_specs=P())


@pytest.mark.parametrize(
    "transform",
    [
        *(sd.jit, sd.pmap, sd.vmap, sd.grad, sd.value_and_grad, sd.checkpoint, sd.jacfwd),
        *(sd.jacrev, sd.custom_jvp, sd.custom_vjp, over_one_device, partial(sd.grad, argnums=0)),
    ],
)
def test_a_transformed_function_wraps_that_of_the_user(transform: Callable[..., Any]) -> None:
    def function(x: float, scale: float = 2.0) -> float:
        return x * scale

    transformed = transform(function)
    assert transformed.__wrapped__ is function
    assert transform(transformed).__wrapped__ is transformed
    assert transformed.__name__ == "function"
    assert signature(transformed) == signature(function)
