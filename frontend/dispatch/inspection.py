"""Inspection of functions without running them: `eval_shape`, and scopes."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.arrays.abstract_value import AbstractValue
from shardir.frontend.arrays.numpy_conversion import abstract_of
from shardir.frontend.arrays.signature import ShapeDtypeStruct
from shardir.frontend.call_signatures import check_call_signature
from shardir.frontend.dispatch.traced_calls import (
    ArgumentLeaf,
    is_array_like,
    result_tracer,
    signature_of_leaf,
    trace_call,
)
from shardir.frontend.errors import ArgumentError, NotAnArrayError
from shardir.frontend.pytree import tree
from shardir.frontend.pytree.tree_checks import check_function
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.quoting import brief_with_type
from shardir.frontend.shardings.sharding import NamedSharding
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracebacks import traceback_boundary
from shardir.frontend.tracing.function_tracing import trace_block
from shardir.frontend.tracing.parameters import Parameters, leaf_labels
from shardir.frontend.tracing.promotion import user_dtype
from shardir.frontend.tracing.trace import current_trace, suspend_trace
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.tracing.typeof import find_explicit_sharding


@traceback_boundary
def eval_shape(fun: UserFunction, *args: PyTree, **options: PyTree) -> PyTree:
    """Return the results of `fun(*args, **options)` with a `ShapeDtypeStruct` for each array.

    Nothing is computed. Arguments are arrays, `ShapeDtypeStruct`s, or any objects with a `shape`
    and a `dtype`.
    """
    known = Parameters.of(fun)
    check_call_signature(fun, known.name, args, options)
    described: dict[int, ShapeDtypeStruct] = {}
    """The results that the function describes by a `ShapeDtypeStruct`, by their position."""

    def call(*args: PyTree, **options: PyTree) -> PyTree:
        results, structure = tree.flatten(fun(*args, **options))
        for i, result in enumerate(results):
            if isinstance(result, ShapeDtypeStruct):
                described[i], results[i] = result, 0
        return tree.unflatten(structure, results)

    results, structure = _trace_shapes(call, known, args, options)
    return tree.unflatten(structure, [described.get(i, each) for i, each in enumerate(results)])


def _trace_shapes(
    fun: UserFunction, known: Parameters, args: Sequence[PyTree], options: Mapping[str, PyTree]
) -> tuple[list[ShapeDtypeStruct], tree.PyTreeDef]:
    """Return the abstract results of `fun`, which has the parameters `known`, and their
    structure."""
    leaves, structure = tree.flatten((args, options))
    labels = [
        *(label for i, arg in enumerate(args) for label in leaf_labels(known.label(i), arg)),
        *(label for key in sorted(options) for label in leaf_labels(key, options[key])),
    ]
    structs = [
        _to_struct(leaf, f"argument {label} of {known.name}")
        for leaf, label in zip(leaves, labels, strict=True)
    ]
    if current_trace() is None:
        described = [
            ArgumentLeaf(label, label, signature_of_leaf(struct))
            for label, struct in zip(labels, structs, strict=True)
        ]
        traced, results = trace_call(
            fun, known.name, described, lambda each: tree.unflatten(structure, each)
        )
        abstracts = traced.results
        if traced.typed_results is not None:
            pairs = zip(abstracts, traced.typed_results, strict=True)
            abstracts = tuple(replace(each, sharding=sharding) for each, sharding in pairs)
        return [*map(_abstract_to_struct, abstracts)], results
    found: list[tree.PyTreeDef] = []

    def flat(*tracers: Tracer) -> list[Tracer]:
        positional, named = tree.unflatten(structure, tracers)
        outs, kind = tree.flatten(fun(*positional, **named))
        found.append(kind)
        return [result_tracer(x, i, kind, known.name) for i, x in enumerate(outs)]

    params = [
        replace(struct.abstract, sharding=find_explicit_sharding(struct)) for struct in structs
    ]
    _, abstracts = trace_block(flat, params, known.name, labels)
    return [*map(_abstract_to_struct, abstracts)], found[-1]


def _to_struct(leaf: object, label: str) -> ShapeDtypeStruct:
    if is_array_like(leaf):
        abstract = abstract_of(leaf, label)
        return _abstract_to_struct(replace(abstract, sharding=find_explicit_sharding(leaf)))
    if hasattr(leaf, "shape") and hasattr(leaf, "dtype"):
        return ShapeDtypeStruct(leaf.shape, leaf.dtype)
    raise NotAnArrayError(
        with_location(f"{label} is {brief_with_type(leaf)}, which has no shape and dtype")
    )


def _abstract_to_struct(abstract: AbstractValue) -> ShapeDtypeStruct:
    type = abstract.type
    sharding = abstract.sharding if isinstance(abstract.sharding, NamedSharding) else None
    dtype = user_dtype(type.dtype)
    return ShapeDtypeStruct(type.shape, dtype, sharding=sharding, weak_type=abstract.weak)


@with_argument_errors
@contextmanager
def ensure_compile_time_eval() -> Iterator[None]:
    """Run functions of arrays eagerly inside the block, even while a function is traced.

    Functions of tracers remain part of the traced program.
    """
    with suspend_trace():
        yield


@with_argument_errors
@contextmanager
def named_scope(name: str) -> Iterator[None]:
    """Accept a scope name without effect, because values are named after variables.

    May be used as a context manager and as a decorator.
    """
    if not isinstance(name, str):
        raise ArgumentError(with_location(f"the name of a scope is a string, got {name!r}"))
    yield


@with_argument_errors
def named_call(fun: UserFunction, *, name: str | None = None) -> UserFunction:
    """Return `fun`; see `named_scope`."""
    check_function("named_call", fun)
    return fun
