"""Functions that transformations return have the name and the signature of the user's function."""

from collections.abc import Callable
from functools import partial, wraps
from inspect import signature
from typing import Any

import pytest

import shardir as sd
from shardir.frontend.errors import ArgumentError
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


class Unnamed:
    """A callable object with a name that is no text."""

    def __init__(self) -> None:
        self.scale = 2.0
        self.__dict__.update(__name__=3, __qualname__=None, __annotations__=())

    def __call__(self, x: Any) -> Any:
        return x * self.scale


@pytest.mark.parametrize("transform", [sd.jit, sd.vmap, sd.grad, sd.checkpoint, sd.custom_jvp])
def test_invalid_names_of_callable_objects_are_not_adopted(transform: Callable[..., Any]) -> None:
    function = Unnamed()
    transformed = transform(function)
    assert isinstance(getattr(transformed, "__name__", ""), str)
    assert transformed.__wrapped__ is function
    assert transformed.scale == 2
    x = sd.numpy.ones(3) if transform is sd.vmap else 1.0
    if transform is not sd.custom_jvp:
        assert float(transformed(x).sum()) == (6 if transform is sd.vmap else 2)


def test_a_wrapper_may_take_other_arguments_than_its_function() -> None:
    def function(model: Any, carry: Any, x: Any) -> Any:
        return carry + x, x

    @wraps(function)
    def body(carry: Any, x: Any) -> Any:
        return function(None, carry, x)

    last, _ = sd.lax.scan(body, 0.0, sd.numpy.ones(3))
    assert float(last) == 3
    with pytest.raises(ArgumentError) as caught:
        sd.lax.cond(True, sd.jit(lambda x: x), lambda x: x)
    assert str(caught.value).startswith(
        "a branch of cond takes (x): missing a required argument: 'x'\n"
    )
