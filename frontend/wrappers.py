"""Functions that wrap a function or a callable object of the user."""

import functools
from collections.abc import Callable
from typing import TypeVar

Wrapper = TypeVar("Wrapper", bound=Callable[..., object])

_TYPES = {
    "__module__": str,
    "__name__": str,
    "__qualname__": str,
    "__doc__": str | None,
    "__annotations__": dict,
}
"""The attributes that a wrapper adopts, and the types that Python requires of them."""


def update_wrapper(
    wrapper: Wrapper, function: Callable[..., object], *, with_attributes: bool = True
) -> Wrapper:
    """Return `wrapper` with the name, the documentation and the attributes of `function`.

    As in JAX, a callable object may have any values there, such as a `__name__` that is no text.
    The wrapper does not adopt invalid ones. `with_attributes=False` leaves out other attributes.
    """
    for name, kind in _TYPES.items():
        value = getattr(function, name, _TYPES)
        if isinstance(value, kind):
            setattr(wrapper, name, value)
    if with_attributes:
        own = getattr(function, "__dict__", {})
        vars(wrapper).update({name: own[name] for name in own if name not in _TYPES})
    wrapper.__wrapped__ = function  # type: ignore[attr-defined]
    return wrapper


def wraps(
    function: Callable[..., object], *, with_attributes: bool = True
) -> Callable[[Wrapper], Wrapper]:
    """Return a decorator that applies `update_wrapper`."""
    return functools.partial(update_wrapper, function=function, with_attributes=with_attributes)
