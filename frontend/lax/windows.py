"""Reductions with a binary function: of complete dimensions, and of sliding windows."""

from collections.abc import Callable
from typing import Any

import numpy as np

from shardir.errors import OperationTypeError
from shardir.frontend.eager import public
from shardir.frontend.lax.convolution import pads_of, steps_of
from shardir.frontend.lax.folding import fold
from shardir.frontend.locations import point
from shardir.frontend.numpy.axes import axes_of
from shardir.frontend.operands import abstract_of, as_tracer, broadcast, convert
from shardir.frontend.promotion import Abstract
from shardir.frontend.trace import emit, trace_block
from shardir.frontend.tracer import Tracer
from shardir.opset import Symbol
from shardir.types import INTEGERS, TensorType

_KNOWN = {"add": "add", "mul": "mul", "maximum": "max", "minimum": "min", "or": "max", "and": "min"}
_WHOLE = {"add": "sum", "mul": "prod", "max": "max", "min": "min"}


def _known_kind(computation: Callable[..., Any], dtype: str, what: str) -> tuple[str, str] | None:
    """Return the operation that a binary function emits, and the name of its reduction.

    Return `None` for every other function.
    """
    params = [Abstract(TensorType((), dtype))] * 2
    label = f"the computation of {what}"
    block, _ = trace_block(lambda x, y: [as_tracer(computation(x, y))], params, label)
    if len(block.ops) == 1:
        op = block.ops[0]
        takes_both = set(op.operands) == set(block.params) and block.returns == op.results
        logic = op.spec.name in ("or", "and")
        if takes_both and op.spec.name in _KNOWN and logic == (dtype == "bool"):
            return op.spec.name, _KNOWN[op.spec.name]
    return None


def _kind_of(computation: Callable[..., Any], dtype: str, what: str) -> tuple[str, str]:
    """Return the result of `_match_reduction`; raise `OperationTypeError` for every other
    function.
    """
    if (kind := _known_kind(computation, dtype, what)) is not None:
        return kind
    raise OperationTypeError(
        point(
            f"{what} takes lax.add, lax.mul, lax.max or lax.min (of bools, lax.bitwise_or or "
            "lax.bitwise_and) as its computation; loop with lax.scan for others"
        )
    )


def _identity(op: str, dtype: str) -> Any:
    if op in ("add", "mul"):
        return int(op == "mul")
    if dtype == "bool":
        return op == "min"
    if dtype in INTEGERS:
        limits = np.iinfo(TensorType((), dtype).numpy)
        return int(limits.min if op == "max" else limits.max)
    return -np.inf if op == "max" else np.inf


@public(static=("computation", "dimensions"), cached=False)
def reduce(
    operands: Any,
    init_values: Any,
    computation: Callable[[Any, Any], Any],
    dimensions: Any,
    *,
    out_sharding: Any = None,
) -> Any:
    """Combine all elements along `dimensions` and the initial value by `computation`.

    `computation` is associative. For several operands, a tuple, it maps two tuples of scalars to a
    tuple. Sums, products, minima and maxima become reduction operations.
    """
    if isinstance(operands, (list, tuple)):
        arrays = [as_tracer(x) for x in operands]
        initial_values = [as_tracer(x) for x in init_values]
        dims = axes_of(dimensions, arrays[0].ndim)
        return fold(computation, arrays, initial_values, dims, single=False)
    x, first = as_tracer(operands), as_tracer(init_values)
    dtype = x.value.type.dtype
    dims = axes_of(dimensions, x.ndim)
    if (kind := _known_kind(computation, dtype, "lax.reduce")) is None:
        return fold(computation, [x], [first], dims, single=True)[0]
    name, op = kind
    core = {"or": "any", "and": "all"}.get(name) or _WHOLE[op]
    reduced = emit(core, x, dims=dims)
    return emit(name, reduced, broadcast(convert(first, dtype), reduced.shape))


def reduce_xor(operand: Any, axes: Any) -> Any:
    """Return the exclusive or of the elements along `axes`, which are integers or bools."""
    from shardir.frontend.lax.elementwise import bitwise_xor

    like = abstract_of(operand, "operand of reduce_xor").type
    return reduce(operand, np.zeros((), like.numpy), bitwise_xor, axes)


def reduce_window(
    operand: Any,
    init_value: Any,
    computation: Callable[[Any, Any], Any],
    window_dimensions: Any,
    window_strides: Any,
    padding: Any,
    base_dilation: Any = None,
    window_dilation: Any = None,
) -> Any:
    """Combine the elements of each window by `computation` (sum, product, maximum, minimum).

    `init_value` must be the identity of the computation: 0 of a sum, -inf of a maximum. `padding`
    is "SAME", "VALID" or (low, high) pairs, for all dimensions.
    """
    label = "init_value of reduce_window"
    kind = abstract_of(init_value, label).type
    if kind.shape or kind.dtype == "key":
        raise OperationTypeError(point(f"the {label} is a number, got {kind}"))
    return _windowed(
        operand,
        np.asarray(init_value).item(),
        computation,
        () if window_dimensions is None else window_dimensions,
        window_strides,
        padding,
        base_dilation,
        window_dilation,
    )


@public(
    static=("init", "computation", "window", "strides", "padding", "base_dilation", "dilation"),
    cached=False,
    name="reduce_window",
)
def _windowed(
    operand: Any,
    init: Any,
    computation: Callable[[Any, Any], Any],
    window: Any,
    strides: Any,
    padding: Any,
    base_dilation: Any,
    dilation: Any,
) -> Any:
    x = as_tracer(operand)
    dtype = x.value.type.dtype
    _, op = _kind_of(computation, dtype, "lax.reduce_window")
    neutral = _identity(op, dtype)
    if init != neutral:
        raise OperationTypeError(
            point(f"the init_value of lax.reduce_window must be {neutral} here, got {init}")
        )
    window = steps_of("window_dimensions", window, x.ndim)
    strides = steps_of("window_strides", strides, x.ndim)
    base = steps_of("base_dilation", base_dilation, x.ndim)
    inner = steps_of("window_dilation", dilation, x.ndim)
    sizes = [(n - 1) * s + 1 for n, s in zip(x.shape, base, strict=True)]
    dilated_window = [(n - 1) * s + 1 for n, s in zip(window, inner, strict=True)]
    result: Tracer = emit(
        "reduce_window",
        x,
        op=Symbol(op),
        window=window,
        strides=strides,
        padding=pads_of(padding, sizes, dilated_window, strides),
        base_dilation=base,
        window_dilation=inner,
    )
    return result
