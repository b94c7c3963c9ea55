"""Tracing of user functions as blocks of one operation."""

from collections.abc import Sequence
from dataclasses import dataclass

from shardir.frontend.arrays.abstract_value import AbstractValue
from shardir.frontend.call_signatures import check_call_signature
from shardir.frontend.dispatch.traced_calls import is_array_like
from shardir.frontend.errors import ControlFlowError
from shardir.frontend.pytree import tree
from shardir.frontend.pytree.key_paths import keystr, leaves_with_path
from shardir.frontend.pytree.tree_structure import format_structure
from shardir.frontend.pytree_types import UserFunction
from shardir.frontend.quoting import brief_with_type
from shardir.frontend.shardings.traced_constraints import match_sharding_types
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing import promotion
from shardir.frontend.tracing.function_tracing import trace_block
from shardir.frontend.tracing.operands import as_tracer, convert
from shardir.frontend.tracing.trace import require_trace
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.tracing.typeof import abstract_text, typeof
from shardir.frontend.tracing.varying_axes import record_queries
from shardir.ir.module import Block
from shardir.ir.operation import Varying
from shardir.ir.types import TensorType

DtypeAndWeak = tuple[str, bool]
"""An element type and whether it is weakly typed."""


@dataclass(frozen=True)
class TracedBody:
    """A traced function: its block, the abstract values of its results, and their containers."""

    block: Block
    results: tuple[AbstractValue, ...]
    structure: tree.PyTreeDef
    depends_on_varying: bool
    """True if the trace depended on the manual axes along which values vary."""


def trace_body(
    fun: UserFunction,
    params: Sequence[AbstractValue],
    structures: Sequence[tree.PyTreeDef],
    what: str,
    names: Sequence[str] = (),
    kinds: Sequence[DtypeAndWeak] | None = None,
    origins: Sequence[Tracer | Varying] = (),
    decision: Tracer | Varying | None = None,
    models: Sequence[Tracer] = (),
) -> TracedBody:
    """Trace `fun`, called with one container for each of `structures`.

    The leaves of its arguments are `params`; its results are converted to `kinds` if given. `what`
    is the label in errors. `origins` are the values that `params` represent at first, or the manual
    axes along which these vary; `decision` is the value on which the execution of the block
    depends. The first results get the sharding types of `models` where conflicts are resolved.
    """
    structures_out: list[tree.PyTreeDef] = []

    def flat(*leaves: Tracer) -> list[Tracer]:
        rest = iter(leaves)
        args = [
            tree.unflatten(structure, [next(rest) for _ in range(structure.num_leaves)])
            for structure in structures
        ]
        check_call_signature(fun, what, args)
        out, structure = tree.flatten(fun(*args))
        structures_out.append(structure)
        results = [_check_returned(x, what) for x in out]
        if kinds is not None:
            results = [convert(x, *kind) for x, kind in zip(results, kinds, strict=True)]
        return _match_types(results, models, what)

    with record_queries() as watch:
        block, results = trace_block(flat, params, what, names, origins, decision)
    return TracedBody(block, results, structures_out[-1], watch.was_queried)


def _match_types(results: list[Tracer], models: Sequence[Tracer], what: str) -> list[Tracer]:
    """Return the first results with the sharding types of `models`, if that is permitted."""
    types = require_trace(what).program.sharding_types
    if types is None or not types.resolves_conflicts:
        return results
    count = min(len(results), len(models))
    matched = match_sharding_types(results[:count], models[:count])
    for old, new in zip(results, matched, strict=False):
        if new is not old:
            types.explain(new.value, f"{what} returned {typeof(old)}")
    return [*matched, *results[count:]]


def _check_returned(x: Tracer, what: str) -> Tracer:
    if not is_array_like(x):
        raise ControlFlowError(
            with_location(f"{what} returned {brief_with_type(x)}, which is not an array")
        )
    return as_tracer(x)


def leaf_names(container: object, stem: str) -> list[str]:
    """Return names for the leaves of a container: the stem, numbered if there are several."""
    count = len(tree.leaves(container))
    return [stem] if count == 1 else [f"{stem}.{i}" for i in range(count)]


def flatten_to_tracers(container: object, what: str) -> tuple[list[Tracer], tree.PyTreeDef]:
    """Return the leaves of a container as tracers; raise `ControlFlowError` for other leaves."""
    leaves, structure = tree.flatten(container)
    for leaf in leaves:
        if not is_array_like(leaf):
            raise ControlFlowError(
                with_location(f"{what} is {brief_with_type(leaf)}, which is not an array")
            )
    return [as_tracer(x) for x in leaves], structure


def set_weak_types(results: Sequence[Tracer], weak: Sequence[bool]) -> list[Tracer]:
    """Return the same values with the given weak types."""
    pairs = zip(results, weak, strict=True)
    return [Tracer(r._trace, r.value, is_weak, r._site) for r, is_weak in pairs]


def dtype_and_weak(abstract: AbstractValue) -> DtypeAndWeak:
    """Return the element type and the weak type of an abstract value."""
    return abstract.type.dtype, abstract.weak


def value_name(structure: tree.PyTreeDef, i: int) -> str:
    """Return the text that identifies a leaf of a container in errors."""
    leaves = leaves_with_path(tree.unflatten(structure, range(structure.num_leaves)))
    return f"value {keystr(leaves[i][0]) or i}"


def mismatch_remedy(first: TensorType, second: TensorType) -> str:
    """Return the part of an error that states how two types differ, and what makes them equal."""
    if first.dtype == second.dtype:
        return "so the shapes differ; make both one shape, for example with .reshape"
    if first.shape == second.shape:
        return "so the dtypes differ; make both one type, for example with .astype"
    return (
        "so the shapes and the dtypes differ; make both one type, for example with .reshape and "
        ".astype"
    )


def match_carry_types(
    carried: Sequence[Tracer],
    out: Sequence[AbstractValue],
    structure: tree.PyTreeDef,
    what: str,
) -> list[Tracer] | None:
    """Convert the carried values to the element types that the body returns.

    Return `None` if they have these types already. Only weakly typed values change; as in JAX, one
    whose element type stays remains weakly typed in the body. Raise `ControlFlowError` if other
    types differ.
    """
    changed = False
    values = []
    for i, (value, returned) in enumerate(zip(carried, out, strict=True)):
        have = value.abstract
        joined = (
            dtype_and_weak(have)
            if have == returned
            else promotion.result_type(dtype_and_weak(have), dtype_and_weak(returned))
        )
        same_type = have.type == returned.type
        widens = (
            have.weak
            and joined[0] == returned.type.dtype
            and have.type.shape == returned.type.shape
        )
        narrows = (
            returned.weak
            and joined[0] == have.type.dtype
            and have.type.shape == returned.type.shape
        )
        if not (same_type or widens or narrows):
            raise ControlFlowError(
                with_location(
                    f"{what} must return the types of its carry: {value_name(structure, i)} is "
                    f"{have.type} in the carry and {returned.type} in the result, "
                    f"{mismatch_remedy(have.type, returned.type)}"
                )
            )
        if have.sharding != returned.sharding:
            raise ControlFlowError(
                with_location(
                    f"{what} must return the types of its carry: {value_name(structure, i)} is "
                    f"{abstract_text(have)} in the carry and {abstract_text(returned)} in the "
                    "result; reshard one of them (sharding.reshard)"
                )
            )
        has_other_dtype = have.type.dtype != joined[0]
        changed = changed or has_other_dtype
        values.append(convert(value, *joined) if has_other_dtype else value)
    return values if changed else None


def check_structure(expected: tree.PyTreeDef, got: tree.PyTreeDef, what: str) -> None:
    """Raise `ControlFlowError` unless the body returns the containers of its carry."""
    if expected != got:
        raise ControlFlowError(
            with_location(
                f"{what} must return containers like its carry {format_structure(expected)}, got "
                f"{format_structure(got)}"
            )
        )
