"""Application of functions of scalars or rows to arrays of them, by `lax.map` and `vmap`."""

import re
from collections.abc import Sequence

from shardir.errors import count_noun
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.call_signatures import call_user_function
from shardir.frontend.dispatch.eager import public
from shardir.frontend.dispatch.traced_calls import check_traceable
from shardir.frontend.errors import ArgumentError, ShapeError
from shardir.frontend.lax.control_flow.loops import map as map_rows
from shardir.frontend.numpy.creation import array_conversion
from shardir.frontend.numpy.shaping import reshaping
from shardir.frontend.pytree import tree
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.quoting import brief
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import as_tracer, broadcast, broadcast_shapes, reshape
from shardir.frontend.transforms.vmap import vmap

_PART = r"\((\w+(,\w+)*)?\)"
_SIGNATURE = re.compile(rf"{_PART}(,{_PART})*->{_PART}(,{_PART})*")
_PARENTHESES = re.compile(r"\(([^)]*)\)")


@public(static=("function", "fixed"), cached=False)
def _vectorize_elements(
    function: UserFunction, fixed: dict[int, object], args: Sequence[PyTree]
) -> PyTree:
    arrays = [as_tracer(x) for x in args]
    shape = broadcast_shapes(*(x.shape for x in arrays))
    rows = [broadcast(x, shape) for x in arrays]
    flat = [reshape(x, (x.value.type.size,)) for x in rows]

    found = map_rows(lambda each: _call_with_elements(function, fixed, each), flat)
    return tree.map(lambda x: reshape(x, (*shape, *x.shape[1:])), found)


def _call_with_elements(
    function: UserFunction, fixed: dict[int, object], parts: Sequence[object]
) -> PyTree:
    """Call the function with one element of each array and the excluded arguments."""
    rest = iter(parts)
    args = [fixed[i] if i in fixed else next(rest) for i in range(len(parts) + len(fixed))]
    return call_user_function(function, "the function of vectorize", args)


@with_argument_errors
def vectorize(
    pyfunc: UserFunction, *, excluded: object = frozenset(), signature: str | None = None
) -> UserFunction:
    """Return a function of arrays that broadcast, which applies `pyfunc` to their elements.

    Arguments at the positions `excluded` are passed unchanged. With a `signature` such as
    "(n),(n,m)->(m)" the function is applied to these last dimensions, and the dimensions before
    them broadcast. Raise `ArgumentError` for a signature that is malformed or does not have one
    entry per argument, and `ShapeError` for arguments whose dimensions do not match it.
    """
    check_traceable(pyfunc, "vectorize")
    if not isinstance(excluded, (set, frozenset, list, tuple, range)):
        raise ArgumentError(
            with_location(f"excluded of vectorize is {brief(excluded)}; it is a set of positions")
        )
    inner = None if signature is None else _parse_signature(signature)

    def function(*args: PyTree) -> PyTree:
        fixed = {i: x for i, x in enumerate(args) if i in excluded}
        rest = [x for i, x in enumerate(args) if i not in fixed]
        if inner is not None:
            return _vectorize_by_signature(
                pyfunc, fixed, rest, inner, f"signature {signature!r} of vectorize"
            )
        return _vectorize_elements(pyfunc, fixed, rest)

    function.__name__ = getattr(pyfunc, "__name__", "vectorized")
    function.__doc__ = pyfunc.__doc__
    return function


def _parse_signature(signature: str) -> list[list[str]]:
    """Return the names of the last dimensions of each argument."""
    if not isinstance(signature, str):
        raise ArgumentError(
            with_location(
                f"the signature of vectorize is text as '(n),(n,m)->(m)', got {brief(signature)}"
            )
        )
    if not _SIGNATURE.fullmatch(signature.replace(" ", "")):
        raise ArgumentError(
            with_location(
                f"vectorize cannot read the signature {signature!r}; write '(n),(n,m)->(m)'"
            )
        )
    arguments = signature.replace(" ", "").split("->")[0]
    return [[name for name in each.split(",") if name] for each in _PARENTHESES.findall(arguments)]


def _vectorize_by_signature(
    function: UserFunction,
    fixed: dict[int, object],
    args: Sequence[PyTree],
    inner: Sequence[Sequence[str]],
    word: str,
) -> PyTree:
    if len(args) != len(inner):
        raise ArgumentError(
            with_location(
                f"{word} is for {count_noun(len(inner), 'argument')}, and it was called with "
                f"{len(args)}"
            )
        )
    arrays = [array_conversion.asarray(x) for x in args]
    sizes: dict[str, int] = {}
    for i, (x, names) in enumerate(zip(arrays, inner, strict=True)):
        if x.ndim < len(names):
            raise ShapeError(
                with_location(
                    f"{word} takes {count_noun(len(names), 'dimension')} of argument {i}, got "
                    f"shape {x.shape}"
                )
            )
        for name, size in zip(names, x.shape[x.ndim - len(names) :], strict=True):
            if sizes.setdefault(name, size) != size:
                raise ShapeError(
                    with_location(
                        f"{word} has {name!r} for sizes that differ, {sizes[name]} and {size}"
                    )
                )
    outer = [x.shape[: x.ndim - len(names)] for x, names in zip(arrays, inner, strict=True)]
    shape = broadcast_shapes(*outer)
    rows = [
        reshaping.broadcast_to(x, (*shape, *x.shape[len(outer_shape) :])).reshape(
            -1, *x.shape[len(outer_shape) :]
        )
        for x, outer_shape in zip(arrays, outer, strict=True)
    ]

    found = vmap(lambda *parts: _call_with_elements(function, fixed, parts))(*rows)
    return tree.map(lambda x: x.reshape(*shape, *x.shape[1:]), found)
