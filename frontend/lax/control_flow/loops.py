"""Loops on traced values: `scan`, `while_loop`, `fori_loop`, `map`.

Each function traces its arguments as blocks of one operation. The blocks may use traced values from
the surrounding trace, which become the constants of the loop. Semantics follow `jax.lax`.
"""

from collections.abc import Callable, Sequence
from operator import index

import numpy as np

from shardir.frontend.argument_checks import check_integer
from shardir.frontend.arrays.abstract_value import AbstractValue
from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.call_signatures import call_user_function, check_call_signature
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import ArgumentError, ControlFlowError, NumberRangeError
from shardir.frontend.lax.control_flow.body_tracing import (
    TracedBody,
    check_structure,
    dtype_and_weak,
    flatten_to_tracers,
    leaf_names,
    match_carry_types,
    set_weak_types,
    trace_body,
)
from shardir.frontend.pytree import tree
from shardir.frontend.pytree.tree_structure import format_structure
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.quoting import brief
from shardir.frontend.shardings.partition_spec import PartitionSpec
from shardir.frontend.shardings.sharding import NamedSharding
from shardir.frontend.shardings.traced_constraints import constrain, slice_abstract
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracebacks import traceback_boundary
from shardir.frontend.tracing.operands import (
    as_tracer,
    convert,
    operand_dtype,
    reshape,
    splat,
)
from shardir.frontend.tracing.promotion import canonical_dtype
from shardir.frontend.tracing.trace import emit, emit_results, require_trace
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.tracing.typeof import typeof
from shardir.frontend.tracing.varying_axes import varying_axes_of, varying_axes_of_returns
from shardir.frontend.transforms.vmap import vmap
from shardir.ir.dtypes import DTYPE_INFO
from shardir.ir.operation import NOT_VARYING, Varying
from shardir.ir.types import INTEGERS, NUMPY_DTYPES


@public(static=("f", "length", "reverse", "unroll"), cached=False)
def scan(
    f: Callable[[PyTree, PyTree], tuple[PyTree, PyTree]],
    init: PyTree,
    xs: PyTree = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
) -> tuple[PyTree, PyTree]:
    """Carry `init` through `f(carry, x) -> (carry, y)` along the first dimension of `xs`.

    Return the last carry and the stacked `y`. `length` is required only without `xs`; `reverse`
    iterates from the last slice to the first; `unroll` is accepted for compatibility and ignored.
    Raise `ControlFlowError` if the carry changes its containers, shape or element type, or if the
    leading sizes of `xs` differ.
    """
    check_integer("unroll of scan", unroll, least=0)
    what = "the body of scan"
    carried, structure = flatten_to_tracers(init, "the carry of scan")
    stacked, stacked_structure = flatten_to_tracers(xs, "an entry of xs of scan")
    count = _scan_length(stacked, length)
    stacked = [_unshard_scanned_dimension(x) for x in stacked]
    slices = [slice_abstract(x) for x in stacked]
    names = [*leaf_names(init, "carry"), *leaf_names(xs, "x")]
    kinds = None
    origins: list[Tracer | Varying] = [*carried, *stacked]
    while True:
        params = [*(c.abstract for c in carried), *slices]
        traced = trace_body(
            f, params, (structure, stacked_structure), what, names, kinds, origins, models=carried
        )
        outs = _check_pair(traced, structure, what)
        changed = match_carry_types(carried, traced.results[: len(carried)], structure, what)
        if changed is not None:
            carried = changed
            continue
        varies = _carried_vma(traced, origins, len(carried))
        if varies is not None:
            origins = [*varies]
            continue
        # Weakly typed results adopt the type of the carry.
        given = [c.value.type.dtype for c in carried]
        if [r.type.dtype for r in traced.results[: len(carried)]] == given:
            break
        kinds = [*(dtype_and_weak(c.abstract) for c in carried), *(dtype_and_weak(y) for y in outs)]
    # Without results the operation may have effects; without effects it is dead code.
    results = emit_results(
        "scan",
        *carried,
        *stacked,
        blocks=(traced.block,),
        carries=len(carried),
        length=count,
        reverse=bool(reverse),
    )
    weak = [result.weak for result in traced.results]
    both: tuple[PyTree, PyTree] = tree.unflatten(traced.structure, set_weak_types(results, weak))
    return both


def _check_pair(
    traced: TracedBody, structure: tree.PyTreeDef, what: str
) -> tuple[AbstractValue, ...]:
    """Return the abstract values of the `y` of a body, which must return (carry, y)."""
    out = tree.unflatten(traced.structure, range(traced.structure.num_leaves))
    if not isinstance(out, (tuple, list)) or len(out) != 2:
        found = "one array" if traced.structure.is_leaf() else format_structure(traced.structure)
        raise ControlFlowError(
            with_location(f"{what} must return a pair (carry, y), it returned {found}")
        )
    check_structure(structure, tree.structure(out[0]), what)
    return traced.results[structure.num_leaves :]


def _unshard_scanned_dimension(x: Tracer) -> Tracer:
    """Return an entry of `xs` with a first dimension that no Explicit axis shards."""
    types = require_trace("scan").program.sharding_types
    sharding = None if types is None else types.sharding_of(x.value)
    if types is None or sharding is None or not sharding.spec or not sharding.spec[0]:
        return x
    reason = (
        f"an entry of xs of scan is {typeof(x)}, and the dimension that scan iterates over must "
        "be unsharded; reshard it first (sharding.reshard)"
    )
    types.refuse(reason)
    spec = PartitionSpec(None, *sharding.spec[1:])
    moved = constrain(x, NamedSharding(sharding.mesh, spec))
    types.explain(moved.value, reason)
    return moved


def _scan_length(stacked: Sequence[Tracer], length: int | None) -> int:
    sizes = []
    for x in stacked:
        if not x.ndim:
            raise ControlFlowError(
                with_location(
                    "scan iterates along the first dimension of xs, and an array of xs is a scalar"
                )
            )
        sizes.append(x.shape[0])
    if length is not None:
        if not hasattr(length, "__index__"):
            raise ControlFlowError(
                with_location(f"the length of scan must be an integer, got {length!r}")
            )
        _check_index_range("the length of scan", index(length), canonical_dtype("i64"))
        sizes.append(index(length))
    if not sizes:
        raise ControlFlowError(with_location("scan without xs needs length="))
    if len(set(sizes)) > 1:
        described = ", ".join(str(size) for size in sizes)
        raise ControlFlowError(with_location(f"scan needs one leading size, got {described}"))
    return sizes[0]


def _check_index_range(what: str, number: int, dtype: str) -> None:
    """Raise `NumberRangeError` unless a bound of a loop fits into the integer type."""
    info = DTYPE_INFO[dtype]
    if not info.min_integer <= number <= info.max_integer:
        can_widen = dtype == canonical_dtype("i64") == "i32" and -(2**63) <= number < 2**63
        hint = "; shardir.enable_x64() makes it int64" if can_widen else ""
        raise NumberRangeError(
            with_location(
                f"{what} is {number}, which does not fit into {NUMPY_DTYPES[dtype]}, the type of "
                f"the loop counter{hint}"
            )
        )


@public(static=("cond_fun", "body_fun"), cached=False)
def while_loop(
    cond_fun: Callable[[PyTree], PyTree], body_fun: Callable[[PyTree], PyTree], init_val: PyTree
) -> PyTree:
    """Apply `body_fun` to `init_val` repeatedly while `cond_fun` returns true.

    `cond_fun` must return a bool of rank 0, `body_fun` the containers and types of its argument.
    There is no reverse-mode derivative; use `fori_loop` with static bounds or `scan` if one is
    required.
    """
    what = "the body of while_loop"
    carried, structure = flatten_to_tracers(init_val, "the carry of while_loop")
    if not carried:
        raise ControlFlowError(
            with_location(
                "init_val of while_loop contains no array, so its condition cannot change; pass at "
                "least one array"
            )
        )
    names = leaf_names(init_val, "carry")
    kinds = None
    origins: list[Tracer | Varying] = [*carried]
    varying: Varying = NOT_VARYING
    while True:
        params = [c.abstract for c in carried]
        body = trace_body(
            body_fun, params, (structure,), what, names, kinds, origins, varying, models=carried
        )
        check_structure(structure, body.structure, what)
        changed = match_carry_types(carried, body.results, structure, what)
        if changed is not None:
            carried = changed
        elif (varies := _carried_vma(body, origins, len(carried))) is not None:
            origins = [*varies]
        elif [r.type for r in body.results] != [p.type for p in params]:
            kinds = [dtype_and_weak(p) for p in params]
        else:
            test = "the condition of while_loop"
            condition = trace_body(cond_fun, params, (structure,), test, names, None, origins)
            if not body.depends_on_varying:
                break
            # Devices that stop after different numbers of iterations have different values.
            condition_vma = NOT_VARYING.union(
                *varying_axes_of_returns(condition.block, varying_axes_of(origins))
            )
            if condition_vma <= varying:
                break
            varying |= condition_vma
            origins = [varies | varying for varies in varying_axes_of(origins)]
    returned_types = [str(a.type) for a in condition.results]
    if returned_types != ["bool[]"]:
        raise ControlFlowError(
            with_location(
                "the condition of while_loop must return one bool[], and it returned "
                f"{', '.join(returned_types) or 'nothing'}; return a comparison, such as x > 0"
            )
        )
    results = emit_results("while", *carried, blocks=(condition.block, body.block))
    return tree.unflatten(structure, set_weak_types(results, [r.weak for r in body.results]))


def _carried_vma(
    body: TracedBody, origins: Sequence[Tracer | Varying], count: int
) -> list[Varying] | None:
    """Return the manual axes along which parameters vary after an iteration.

    The first `count` parameters are carried. Return `None` if the axes do not change, or if the
    body does not depend on them.
    """
    if not body.depends_on_varying:
        return None
    starts = varying_axes_of(origins)
    ends = varying_axes_of_returns(body.block, starts)
    grown = [a | b for a, b in zip(starts[:count], ends[:count], strict=True)]
    return None if grown == starts[:count] else [*grown, *starts[count:]]


@traceback_boundary
def fori_loop(
    lower: ArrayLike,
    upper: ArrayLike,
    body_fun: Callable[[PyTree, PyTree], PyTree],
    init_val: PyTree,
    *,
    unroll: int | bool | None = None,
) -> PyTree:
    """Apply `body_fun(i, value) -> value` for i = lower, ..., upper - 1, beginning with `init_val`.

    With concrete bounds this is a `scan`, which has reverse-mode derivatives; otherwise a
    `while_loop`. Bounds are integers of one type; a Python integer adopts the type of the other
    bound. `unroll` is accepted for compatibility and ignored. Raise `NumberRangeError` for concrete
    bounds whose indices, or whose number of iterations, do not fit the index type, and
    `ControlFlowError` for bounds of two types.
    """
    if unroll is not None:
        check_integer("unroll of fori_loop", unroll, least=0)
    start, stop = _concrete_bound(lower), _concrete_bound(upper)
    if start is not None and stop is not None:
        count = max(stop - start, 0)
        _check_index_range("lower of fori_loop", start, canonical_dtype("i64"))
        _check_index_range(
            "the last index of fori_loop", max(start, stop - 1), canonical_dtype("i64")
        )
        _check_index_range("the number of rounds of fori_loop", count, canonical_dtype("i64"))
        return _loop_with_static_bounds(start, count, body_fun, init_val)
    for name, given, other in (("lower", start, upper), ("upper", stop, lower)):
        if given is not None and hasattr(other, "dtype"):
            dtype, is_weak = operand_dtype(other)
            _check_index_range(
                f"{name} of fori_loop", given, canonical_dtype("i64") if is_weak else dtype
            )
    return _loop_with_traced_bounds(lower, upper, body_fun, init_val)


def _concrete_bound(bound: ArrayLike) -> int | None:
    """Return the bound if it is a concrete integer, else `None`."""
    if isinstance(bound, Tracer) and bound.shape == () and bound.value.type.dtype in INTEGERS:
        elements = bound.find_elements()
        return None if elements is None else int(elements)
    if isinstance(bound, (int, np.integer)) and not isinstance(bound, bool):
        return int(bound)
    return None


def _loop_with_static_bounds(
    start: int, count: int, body_fun: UserFunction, init_val: PyTree
) -> PyTree:
    what = "the body of fori_loop"

    def step(carry: tuple[PyTree, PyTree], _: None) -> tuple[tuple[PyTree, PyTree], None]:
        i, value = carry
        check_call_signature(body_fun, what, (i, value))
        found = body_fun(i, value)
        check_structure(tree.structure(value), tree.structure(found), what)
        return (i + 1, found), None

    # The index is weakly typed: it adopts the element type of the other operand.
    return scan(step, (start, init_val), None, length=count)[0][1]


@public(static=("body_fun",), cached=False, name="fori_loop")
def _loop_with_traced_bounds(
    lower: ArrayLike, upper: ArrayLike, body_fun: UserFunction, init_val: PyTree
) -> PyTree:
    bounds = [as_tracer(lower), as_tracer(upper)]
    for bound in bounds:
        if bound.value.type.dtype not in INTEGERS or bound.ndim:
            raise ControlFlowError(
                with_location(
                    f"the bounds of fori_loop are integers of rank 0, got {bound.value.type}"
                )
            )
    typed = list(dict.fromkeys(b.value.type.dtype for b in bounds if not b.weak_type))
    if len(typed) > 1:
        raise ControlFlowError(
            with_location(
                f"the bounds of fori_loop are integers of one type, got {' and '.join(typed)}; "
                "convert one with astype"
            )
        )
    dtype = typed[0] if typed else canonical_dtype("i64")
    weak = all(bound.weak_type for bound in bounds)
    first, last = (convert(bound, dtype, weak) for bound in bounds)

    def is_below_bound(carry: tuple[PyTree, PyTree]) -> Tracer:
        return emit("lt", carry[0], last)

    def body(carry: tuple[PyTree, PyTree]) -> tuple[PyTree, PyTree]:
        i, value = carry
        next_index = emit("add", i, splat(1, i.value.type), weak=i.weak_type)
        check_call_signature(body_fun, "the body of fori_loop", (i, value))
        return next_index, body_fun(i, value)

    return while_loop(is_below_bound, body, (first, init_val))[1]


@traceback_boundary
def map(f: Callable[[PyTree], PyTree], xs: PyTree, *, batch_size: int | None = None) -> PyTree:
    """Apply `f` to every slice of `xs` along the first dimension in sequence, and stack the
    results.

    With `batch_size`, `vmap` applies `f` to batches of this many slices in sequence, and then to
    the remaining slices. Raise `ArgumentError` if it is not a positive integer.
    """
    if not callable(f):
        raise ArgumentError(with_location(f"map takes a function, got {brief(f)}"))
    if batch_size is None:
        return scan(
            lambda _, x: (None, call_user_function(f, "the function of map", (x,))), None, xs
        )[1]
    return _map_batches(f, xs, check_integer("batch_size of map", batch_size, least=1))


@public(static=("f", "size"), cached=False)
def _map_batches(f: Callable[[PyTree], PyTree], xs: PyTree, size: int) -> PyTree:
    """Apply `f` to batches of `size` slices in sequence, and to the remaining slices."""
    tracers = tree.map(as_tracer, xs)
    leaves = tree.leaves(tracers)
    mapped = vmap(f)
    count = min((x.shape[0] for x in leaves if x.ndim), default=0)
    whole = count - count % size
    if not whole:
        return mapped(tracers)
    batches = tree.map(lambda x: reshape(x[:whole], (whole // size, size, *x.shape[1:])), tracers)
    stacked = scan(lambda _, x: (None, mapped(x)), None, batches)[1]
    results = tree.map(lambda y: reshape(y, (whole, *y.shape[2:])), stacked)
    if whole == count:
        return results
    rest = mapped(tree.map(lambda x: x[whole:], tracers))
    return tree.map(lambda y, z: emit("concatenate", y, z, dim=0), results, rest)
