"""Reductions with a binary function: of complete dimensions, and of sliding windows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from shardir import ops
from shardir.errors import OperationTypeError
from shardir.frontend.arrays.abstract_value import AbstractValue
from shardir.frontend.arrays.array_types import ArrayLike, AxisLike
from shardir.frontend.arrays.numpy_conversion import abstract_of
from shardir.frontend.dispatch.eager import public
from shardir.frontend.lax.control_flow.tree_reduction import reduce_pairwise
from shardir.frontend.lax.convolutions.convolution import check_positive_integers, resolve_padding
from shardir.frontend.lax.elementwise import bitwise_xor
from shardir.frontend.numpy.tracer_helpers.axes import canonicalize_axes
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.shardings.requested_sharding import ShardingRequest
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import as_tracer, broadcast, convert
from shardir.frontend.tracing.trace import emit, trace_block
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.dtypes import DTYPE_INFO, KEYS
from shardir.ir.operation import OpSpec, Symbol
from shardir.ir.types import INTEGERS, TensorType


@dataclass(frozen=True)
class _Reduction:
    """The reduction with a binary operation: `full` of dimensions, `window` that of windows."""

    binary: OpSpec
    full: OpSpec
    window: str


_REDUCTIONS = (
    _Reduction(ops.add, ops.sum_, "add"),
    _Reduction(ops.mul, ops.prod, "mul"),
    _Reduction(ops.maximum, ops.max_, "max"),
    _Reduction(ops.minimum, ops.min_, "min"),
    _Reduction(ops.or_, ops.any_, "max"),
    _Reduction(ops.and_, ops.all_, "min"),
)


def _match_reduction(computation: UserFunction, dtype: str, what: str) -> _Reduction | None:
    """Return the reduction with a binary function, or `None` if the function is no operation of a
    reduction.
    """
    params = [AbstractValue(TensorType((), dtype))] * 2
    label = f"the computation of {what}"
    block, _ = trace_block(lambda x, y: [as_tracer(computation(x, y))], params, label)
    if len(block.ops) == 1:
        op = block.ops[0]
        takes_both = set(op.operands) == set(block.params) and block.returns == op.results
        logic = op.spec in (ops.or_, ops.and_)
        if takes_both and logic == (dtype == "bool"):
            return next((each for each in _REDUCTIONS if each.binary is op.spec), None)
    return None


def _require_reduction(computation: UserFunction, dtype: str, what: str) -> _Reduction:
    """Return the result of `_match_reduction`; raise `OperationTypeError` for every other
    function.
    """
    if (kind := _match_reduction(computation, dtype, what)) is not None:
        return kind
    raise OperationTypeError(
        with_location(
            f"{what} takes lax.add, lax.mul, lax.max or lax.min (of bools, lax.bitwise_or or "
            "lax.bitwise_and; of complex numbers, lax.add or lax.mul) as its computation; loop "
            "with lax.scan for others"
        )
    )


def _identity_of(op: str, dtype: str) -> float | int:
    if op in ("add", "mul"):
        return int(op == "mul")
    if dtype == "bool":
        return op == "min"
    if dtype in INTEGERS:
        info = DTYPE_INFO[dtype]
        return info.min_integer if op == "max" else info.max_integer
    return -np.inf if op == "max" else np.inf


@public(static=("computation", "dimensions"), cached=False)
def reduce(
    operands: PyTree,
    init_values: PyTree,
    computation: Callable[[PyTree, PyTree], PyTree],
    dimensions: AxisLike,
    *,
    out_sharding: ShardingRequest = None,
) -> PyTree:
    """Combine all elements along `dimensions` and the initial value by `computation`.

    `computation` is associative. For several operands, a tuple, it maps two tuples of scalars to a
    tuple. Sums, products, minima and maxima become reduction operations.
    """
    if isinstance(operands, (list, tuple)):
        arrays = [as_tracer(x) for x in operands]
        initial_values = [as_tracer(x) for x in init_values]
        dims = canonicalize_axes(dimensions, arrays[0].ndim)
        return reduce_pairwise(computation, arrays, initial_values, dims, single=False)
    x, first = as_tracer(operands), as_tracer(init_values)
    dtype = x.value.type.dtype
    dims = canonicalize_axes(dimensions, x.ndim)
    if (kind := _match_reduction(computation, dtype, "lax.reduce")) is None:
        return reduce_pairwise(computation, [x], [first], dims, single=True)[0]
    reduced = emit(kind.full, x, dims=dims)
    return emit(kind.binary, reduced, broadcast(convert(first, dtype), reduced.shape))


def reduce_xor(operand: ArrayLike, axes: AxisLike) -> Tracer:
    """Return the exclusive or of the elements along `axes`, which are integers or bools."""
    like = abstract_of(operand, "operand of reduce_xor").type
    result: Tracer = reduce(operand, np.zeros((), like.numpy), bitwise_xor, axes)
    return result


def reduce_window(
    operand: ArrayLike,
    init_value: ArrayLike,
    computation: Callable[[PyTree, PyTree], PyTree],
    window_dimensions: object,
    window_strides: object = None,
    padding: str | Sequence[tuple[int, int]] = "VALID",
    base_dilation: object = None,
    window_dilation: object = None,
) -> Tracer:
    """Combine the elements of each window by `computation` (sum, product, maximum, minimum).

    `init_value` must be the identity of the computation: 0 of a sum, -inf of a maximum. `padding`
    is "SAME", "VALID" or (low, high) pairs, for all dimensions.
    """
    label = "init_value of reduce_window"
    kind = abstract_of(init_value, label).type
    if kind.shape or kind.dtype in KEYS:
        raise OperationTypeError(with_location(f"the {label} is a number, got {kind}"))
    return _emit_reduce_window(
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
def _emit_reduce_window(
    operand: ArrayLike,
    init: Tracer,
    computation: Callable[[PyTree, PyTree], PyTree],
    window: object,
    strides: object,
    padding: str | Sequence[tuple[int, int]],
    base_dilation: object,
    dilation: object,
) -> Tracer:
    x = as_tracer(operand)
    dtype = x.value.type.dtype
    op = _require_reduction(computation, dtype, "lax.reduce_window").window
    neutral = _identity_of(op, dtype)
    if init != neutral:
        raise OperationTypeError(
            with_location(f"the init_value of lax.reduce_window must be {neutral} here, got {init}")
        )
    window = check_positive_integers("window_dimensions", window, x.ndim)
    strides = check_positive_integers("window_strides", strides, x.ndim)
    base = check_positive_integers("base_dilation", base_dilation, x.ndim)
    inner = check_positive_integers("window_dilation", dilation, x.ndim)
    sizes = [(n - 1) * s + 1 for n, s in zip(x.shape, base, strict=True)]
    dilated_window = [(n - 1) * s + 1 for n, s in zip(window, inner, strict=True)]
    result: Tracer = emit(
        "reduce_window",
        x,
        op=Symbol(op),
        window=window,
        strides=strides,
        padding=resolve_padding(padding, sizes, dilated_window, strides),
        base_dilation=base,
        window_dilation=inner,
    )
    return result
