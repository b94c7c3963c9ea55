"""Reductions with a binary function: of complete dimensions, and of sliding windows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from shardir import ops
from shardir.errors import OperationTypeError
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.arrays.abstract_value import AbstractValue
from shardir.frontend.arrays.array_types import ArrayLike, AxisLike
from shardir.frontend.arrays.numpy_conversion import abstract_of
from shardir.frontend.call_signatures import check_function
from shardir.frontend.dispatch.eager import public
from shardir.frontend.lax.control_flow.body_tracing import set_weak_types
from shardir.frontend.lax.control_flow.tree_reduction import reduce_pairwise
from shardir.frontend.lax.convolutions.convolution import check_positive_integers, resolve_padding
from shardir.frontend.lax.convolutions.window_combination import combine_windows
from shardir.frontend.lax.elementwise import bitwise_xor
from shardir.frontend.numpy.tracer_helpers.axes import canonicalize_axes
from shardir.frontend.pytree import tree
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.shardings.requested_sharding import ShardingRequest
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.function_tracing import trace_block
from shardir.frontend.tracing.operands import as_tracer, broadcast, convert
from shardir.frontend.tracing.trace import emit
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
    block, _ = trace_block(lambda x, y: [_as_result(computation(x, y), label)], params, label)
    if len(block.ops) == 1:
        op = block.ops[0]
        takes_both = set(op.operands) == set(block.params) and block.returns == op.results
        logic = op.spec in (ops.or_, ops.and_)
        if takes_both and logic == (dtype == "bool"):
            return next((each for each in _REDUCTIONS if each.binary is op.spec), None)
    return None


def _as_result(value: ArrayLike, label: str) -> Tracer:
    """Return a result of a computation, which `label` names in errors, as a tracer."""
    abstract_of(value, f"a result of {label}")
    return as_tracer(value)


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

    `computation` is associative. For several operands, a pytree, it maps two pytrees of scalars to
    one. Sums, products, minima and maxima become reduction operations.
    """
    check_function(computation, "computation of reduce")
    leaves, structure = tree.flatten(operands)
    if not leaves:
        raise OperationTypeError(with_location("lax.reduce takes at least one array"))
    firsts, rows = _initial_values(init_values, structure, "reduce"), [*map(as_tracer, leaves)]
    dims = canonicalize_axes(dimensions, rows[0].ndim)
    x, dtype = rows[0], rows[0].value.type.dtype
    kind = None
    if structure == tree.structure(0):
        kind = _match_reduction(computation, dtype, "lax.reduce")
    if kind is None:
        combine = _combine_leaves(computation, structure, "reduce")
        made = reduce_pairwise(combine, rows, firsts, dims, single=False)
        weak = [x.weak_type and first.weak_type for x, first in zip(rows, firsts, strict=True)]
        return tree.unflatten(structure, set_weak_types(made, weak))
    reduced = emit(kind.full, x, dims=dims)
    return emit(
        kind.binary,
        reduced,
        broadcast(convert(firsts[0], dtype, firsts[0].weak_type), reduced.shape),
    )


def _initial_values(values: PyTree, structure: tree.PyTreeDef, name: str) -> list[Tracer]:
    """Return the initial value of each operand."""
    leaves, own = tree.flatten(values)
    if own != structure:
        raise OperationTypeError(
            with_location(
                f"the operands of lax.{name} are {structure}, and the initial values {own}; pass "
                "an initial value for each operand, in the same containers"
            )
        )
    initial = [*map(as_tracer, leaves)]
    for value in initial:
        if value.ndim:
            raise OperationTypeError(
                with_location(f"an initial value of lax.{name} is a scalar, got {value.value.type}")
            )
    return initial


def _combine_leaves(
    computation: UserFunction, structure: tree.PyTreeDef, name: str
) -> UserFunction:
    """Return the computation of pytrees as a function of tuples of their leaves."""

    def combine(first: Sequence[Tracer], second: Sequence[Tracer]) -> tuple[Tracer, ...]:
        made = computation(tree.unflatten(structure, first), tree.unflatten(structure, second))
        leaves, own = tree.flatten(made)
        if own != structure and len(leaves) != len(first):
            raise OperationTypeError(
                with_location(
                    f"the computation of lax.{name} returns {own}, and its operands are "
                    f"{structure}; return one value for each operand"
                )
            )
        label = f"the computation of lax.{name}"
        return tuple(
            convert(_as_result(leaf, label), x.value.type.dtype)
            for leaf, x in zip(leaves, first, strict=True)
        )

    return combine


@with_argument_errors
def reduce_xor(operand: ArrayLike, axes: AxisLike) -> Tracer:
    """Return the exclusive or of the elements along `axes`, which are integers or bools."""
    like = abstract_of(operand, "operand of reduce_xor").type
    result: Tracer = reduce(operand, np.zeros((), like.numpy), bitwise_xor, axes)
    return result


@with_argument_errors
def reduce_window(
    operand: PyTree,
    init_value: PyTree,
    computation: Callable[[PyTree, PyTree], PyTree],
    window_dimensions: object,
    window_strides: object = None,
    padding: str | Sequence[tuple[int, int]] = "VALID",
    base_dilation: object = None,
    window_dilation: object = None,
) -> PyTree:
    """Combine the elements of each window and the initial value by `computation`.

    `computation` is associative. For several operands, a pytree, it maps two pytrees of scalars to
    one. Sums, products, maxima and minima that start with their identity (0 of a sum, -inf of a
    maximum) become one operation; for others, each position of a window becomes a slice. `padding`
    is "SAME", "VALID" or (low, high) pairs, for all dimensions; it does not count.
    """
    static = (
        computation,
        () if window_dimensions is None else window_dimensions,
        window_strides,
        padding,
        base_dilation,
        window_dilation,
    )
    check_function(computation, "computation of reduce_window")
    identity: object = None
    if tree.structure(init_value) == tree.structure(0):
        label = "init_value of reduce_window"
        kind = abstract_of(init_value, label).type
        if kind.shape or kind.dtype in KEYS:
            raise OperationTypeError(with_location(f"the {label} is a number, got {kind}"))
        if not isinstance(init_value, Tracer):
            identity = np.asarray(init_value).item()
    return _emit_reduce_window(operand, init_value, identity, *static)


@public(
    static=("init", "computation", "window", "strides", "padding", "base_dilation", "dilation"),
    cached=False,
    name="reduce_window",
)
def _emit_reduce_window(
    operand: PyTree,
    init_value: PyTree,
    init: object,
    computation: Callable[[PyTree, PyTree], PyTree],
    window: object,
    strides: object,
    padding: str | Sequence[tuple[int, int]],
    base_dilation: object,
    dilation: object,
) -> PyTree:
    leaves, structure = tree.flatten(operand)
    if not leaves:
        raise OperationTypeError(with_location("lax.reduce_window takes at least one array"))
    firsts = _initial_values(init_value, structure, "reduce_window")
    x, *others = arrays = [*map(as_tracer, leaves)]
    if any(other.shape != x.shape for other in others):
        shapes = " and ".join(str(each.shape) for each in arrays)
        raise OperationTypeError(
            with_location(f"the operands of lax.reduce_window have one shape, got {shapes}")
        )
    window = check_positive_integers("window_dimensions", window, x.ndim)
    strides = check_positive_integers("window_strides", strides, x.ndim)
    base = check_positive_integers("base_dilation", base_dilation, x.ndim)
    inner = check_positive_integers("window_dilation", dilation, x.ndim)
    dilated_window = [(n - 1) * s + 1 for n, s in zip(window, inner, strict=True)]
    # As in JAX, "SAME" does not depend on the dilation of the operand.
    pads = resolve_padding(padding, x.shape, dilated_window, strides)
    kind, dtype = None, x.value.type.dtype
    if structure == tree.structure(0):
        kind = _match_reduction(computation, dtype, "lax.reduce_window")
    if kind is not None and init is not None and init == _identity_of(kind.window, dtype):
        return emit(
            "reduce_window", x, op=Symbol(kind.window), window=window, strides=strides,
            padding=pads, base_dilation=base, window_dilation=inner,
        )  # fmt: skip
    combine = _combine_leaves(computation, structure, "reduce_window")
    made = combine_windows(combine, arrays, firsts, window, strides, pads, base, inner)
    return tree.unflatten(structure, made)
