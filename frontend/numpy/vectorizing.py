"""Functions of numbers as functions of arrays, one element after the other (a `scan`)."""

from collections.abc import Callable, Sequence
from typing import Any

from shardir.frontend import tree
from shardir.frontend.eager import public
from shardir.frontend.errors import ArgumentError
from shardir.frontend.locations import point
from shardir.frontend.operands import as_tracer, broadcast, broadcast_shapes, reshape
from shardir.frontend.tracer import Tracer


@public(static=("function", "fixed"), cached=False)
def _vectorized(function: Callable[..., Any], fixed: dict[int, Any], args: Sequence[Any]) -> Any:
    from shardir.frontend.lax import map as map_rows

    arrays = [as_tracer(x) for x in args]
    shape = broadcast_shapes(*(x.shape for x in arrays))
    rows = [broadcast(x, shape) for x in arrays]
    flat = [reshape(x, (x.value.type.size,)) for x in rows]

    def of_elements(*elements: Tracer) -> Any:
        rest = iter(elements)
        count = len(elements) + len(fixed)
        return function(*(fixed[i] if i in fixed else next(rest) for i in range(count)))

    found = map_rows(lambda each: of_elements(*each), flat)
    return tree.map(lambda x: reshape(x, (*shape, *x.shape[1:])), found)


def vectorize(
    pyfunc: Callable[..., Any], *, excluded: Any = frozenset(), signature: str | None = None
) -> Callable[..., Any]:
    """A function of arrays that broadcast, which applies `pyfunc` to their elements.

    Arguments at the positions `excluded` are passed on as they are. Signatures with axes are not
    supported.
    """
    if signature is not None:
        raise ArgumentError(point(f"vectorize takes no signature, got {signature!r}"))

    def function(*args: Any) -> Any:
        fixed = {i: x for i, x in enumerate(args) if i in excluded}
        return _vectorized(pyfunc, fixed, [x for i, x in enumerate(args) if i not in fixed])

    function.__name__ = getattr(pyfunc, "__name__", "vectorized")
    function.__doc__ = pyfunc.__doc__
    return function
