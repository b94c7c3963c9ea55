"""Branches on traced values: `cond` and `switch`."""

from collections.abc import Mapping, Sequence

from shardir.frontend.arrays.abstract_value import AbstractValue
from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.call_signatures import call_user_function, check_call_signature
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import ControlFlowError
from shardir.frontend.lax.control_flow.body_tracing import (
    DtypeAndWeak,
    TracedBody,
    dtype_and_weak,
    mismatch_remedy,
    set_weak_types,
    trace_body,
    value_name,
)
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import as_bool
from shardir.frontend.pytree import tree
from shardir.frontend.pytree.tree_structure import format_structure
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.shardings.devices import local_devices
from shardir.frontend.source_locations import find_definition, with_location
from shardir.frontend.tracebacks import traceback_boundary
from shardir.frontend.tracing import promotion
from shardir.frontend.tracing.operands import as_tracer, convert, splat
from shardir.frontend.tracing.parameters import function_name
from shardir.frontend.tracing.trace import emit, emit_results, require_trace, wrap_value
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.tracing.typeof import abstract_text
from shardir.ir.dtypes import DTYPE_INFO
from shardir.ir.types import INTEGERS

_UNSET = object()


@traceback_boundary
def cond(
    pred: ArrayLike,
    true_fun: UserFunction,
    false_fun: UserFunction,
    *operands: PyTree,
    operand: object = _UNSET,
) -> PyTree:
    """Return `true_fun(*operands)` if the scalar `pred` is true (or not zero), else
    `false_fun(*operands)`.

    Both functions must return the same containers, shapes and element types; otherwise raise
    `ControlFlowError`. `operand` is an alternative way to pass a single operand. The arguments may
    also be `pred, true_operand, true_fun, false_operand, false_fun`.
    """
    if (
        len(operands) == 2
        and not callable(true_fun)
        and callable(false_fun)
        and callable(operands[1])
    ):
        each = true_fun, operands[0]
        on_true, on_false = false_fun, operands[1]
        return _cond(pred, lambda x, _: on_true(x), lambda _, x: on_false(x), *each)
    if operand is not _UNSET:
        operands = (*operands, operand)
    return _cond(pred, true_fun, false_fun, *operands)


@public(static=("true_fun", "false_fun"), cached=False)
def _cond(
    pred: ArrayLike, true_fun: UserFunction, false_fun: UserFunction, *operands: PyTree
) -> PyTree:
    which = as_tracer(pred)
    if which.ndim:
        raise ControlFlowError(
            with_location(
                f"cond takes a scalar as condition, got {which.value.type}; use snp.where for "
                "elements"
            )
        )
    branches = {"false_fun": false_fun, "true_fun": true_fun}
    return _emit_case(as_bool(which), branches, operands, "a branch of cond")


@public(static=("branches",), cached=False)
def switch(
    index: ArrayLike,
    branches: Sequence[UserFunction],
    *operands: PyTree,
    operand: PyTree = _UNSET,
) -> PyTree:
    """Return `branches[index](*operands)`; an index out of range is clamped.

    `operand` is another way to pass a single operand.

    All branches must return the same containers, shapes and element types; otherwise raise
    `ControlFlowError`.
    """
    branches = tuple(branches)
    if operand is not _UNSET:
        operands = (*operands, operand)
    if not branches:
        raise ControlFlowError(with_location("switch has no branches; pass at least one function"))
    which = as_tracer(index)
    if which.ndim or which.value.type.dtype not in INTEGERS:
        raise ControlFlowError(
            with_location(f"switch takes an integer of rank 0 as index, got {which.value.type}")
        )
    if len(branches) == 1:
        return branches[0](*operands)
    named = {f"branch {i}": branch for i, branch in enumerate(branches)}
    return _emit_case(_clamp_index(which, len(branches) - 1), named, operands, "a branch of switch")


def _clamp_index(index: Tracer, last: int) -> Tracer:
    kind = index.value.type
    highest = splat(min(last, DTYPE_INFO[kind.dtype].max_integer), kind)
    return convert(emit("clamp", splat(0, kind), index, highest), "i32")


def _emit_case(
    which: Tracer, branches: Mapping[str, UserFunction], operands: Sequence[PyTree], what: str
) -> PyTree:
    """Emit a case of branches, which errors name by the keys of `branches`."""
    for branch in branches.values():
        check_call_signature(branch, what, operands)

    models: list[Tracer] = []

    def trace_branches(kinds: Sequence[DtypeAndWeak] | None = None) -> list[TracedBody]:
        return [
            trace_body(lambda f=f: f(*operands), (), (), what, (), kinds, (), which, models=models)
            for f in branches.values()
        ]

    bodies = trace_branches()
    structure = _common_structure(branches, bodies)
    kinds, has_conflict = _common_types(branches, bodies, structure)
    if has_conflict:
        first_block = bodies[0].block
        models[:] = [wrap_value(value) for value in first_block.returns]
    if has_conflict or any(
        dtype_and_weak(r) != k for body in bodies for r, k in zip(body.results, kinds, strict=True)
    ):
        bodies = trace_branches(kinds)
    # Without results the operation may have effects; without effects it is dead code.
    emitted = emit_results("case", which, blocks=tuple(body.block for body in bodies))
    return tree.unflatten(structure, set_weak_types(emitted, [weak for _, weak in kinds]))


def _common_structure(
    branches: Mapping[str, UserFunction], bodies: Sequence[TracedBody]
) -> tree.PyTreeDef:
    """Return the structure of the results of all branches; raise if they differ."""
    first = bodies[0]
    for (name, branch), other in zip(branches.items(), bodies, strict=True):
        if other.structure != first.structure:
            one, another = (
                _describe_branch(*next(iter(branches.items()))),
                _describe_branch(name, branch),
            )
            raise ControlFlowError(
                with_location(
                    f"branches must return the same containers, got "
                    f"{format_structure(first.structure)} from {one} and "
                    f"{format_structure(other.structure)} from {another}"
                )
            )
    return first.structure


def _common_types(
    branches: Mapping[str, UserFunction], bodies: Sequence[TracedBody], structure: tree.PyTreeDef
) -> tuple[list[DtypeAndWeak], bool]:
    """Return the common dtypes of the results of all branches, and whether shardings in types were
    refused; raise if other parts of the types differ."""
    kinds: list[DtypeAndWeak] = []
    has_conflict = False
    for i, results in enumerate(zip(*(body.results for body in bodies), strict=True)):
        common = promotion.result_type(*map(dtype_and_weak, results))
        if any(
            r.type.shape != results[0].type.shape or (r.type.dtype != common[0] and not r.weak)
            for r in results
        ):
            types, remedy = _describe_types(branches, results)
            name = value_name(structure, i)
            raise ControlFlowError(
                with_location(f"branches must return the same types: {name} is {types}, {remedy}")
            )
        kinds.append(common)
        shardings = {r.sharding for r in results}
        if len(shardings) > 1:
            types = " and ".join(dict.fromkeys(map(abstract_text, results)))
            reason = (
                f"branches must return the same types: {value_name(structure, i)} is "
                f"{types}; reshard it (sharding.reshard) in one of them"
            )
            has_conflict = True
            if (sharding_types := require_trace("a branch").program.sharding_types) is not None:
                sharding_types.refuse(reason, ControlFlowError)
    return kinds, has_conflict


def _describe_branch(name: str, branch: UserFunction) -> str:
    """Return the name of a branch with the location of its definition."""
    loc = find_definition(branch)
    return f"{name} ({function_name(branch)})" if loc is None else f"{name} ({loc.file}:{loc.line})"


def _describe_types(
    branches: Mapping[str, UserFunction], results: Sequence[AbstractValue]
) -> tuple[str, str]:
    """Return the type of a result in the first two branches that differ, and the remedy."""
    pairs = list(zip(branches.items(), results, strict=True))
    (first, expected), *others = pairs
    branch, result = next(pair for pair in others if pair[1].type != expected.type)
    types = " and ".join(
        f"{abstract.type} in {_describe_branch(*named)}"
        for named, abstract in ((first, expected), (branch, result))
    )
    return types, mismatch_remedy(expected.type, result.type)


@traceback_boundary
def platform_dependent(
    *args: PyTree, default: UserFunction | None = None, **per_platform: UserFunction
) -> PyTree:
    """Call the function for the platform of the local devices (`cpu=...`), or `default`.

    Raise `ControlFlowError` if there is neither.
    """
    platform = local_devices()[0].platform
    chosen = per_platform.get(platform, default)
    if chosen is None:
        known = ", ".join(sorted(per_platform)) or "none"
        raise ControlFlowError(
            with_location(
                f"platform_dependent has functions for {known}, and the platform is {platform}; "
                "give it a default"
            )
        )
    return call_user_function(
        chosen, f"the function of platform_dependent for {platform}", args, {}
    )
