"""Inspection of functions without running them: `make_ir`, `eval_shape`, and scopes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from shardir.frontend import tree
from shardir.frontend.calling import Leaf, is_array_like, returned, signature_of_leaf, trace_call
from shardir.frontend.errors import ArgumentError, NotAnArrayError
from shardir.frontend.jit import Names, Numbers, jit
from shardir.frontend.locations import point
from shardir.frontend.operands import abstract_of
from shardir.frontend.parameters import Parameters, check_call, labels_of
from shardir.frontend.promotion import Abstract, user_dtype
from shardir.frontend.quoting import brief_with_type
from shardir.frontend.signature import ShapeDtypeStruct
from shardir.frontend.trace import current, resumed, trace_block
from shardir.frontend.tracer import Tracer
from shardir.frontend.tree_checks import check_function


def make_ir(
    fun: Callable[..., Any],
    static_argnums: Numbers = None,
    *,
    static_argnames: Names = None,
    return_shape: bool = False,
) -> Callable[..., Any]:
    """Return a function that returns the program that `jit` of `fun` would make for its arguments.

    Arguments are arrays or `ShapeDtypeStruct`s. The program is a `Module`; `str` of it is its text.
    With `return_shape` the result is `(module, shapes of the results)`.
    """
    check_function("make_ir", fun)
    compiled = jit(fun, static_argnums=static_argnums, static_argnames=static_argnames)

    @wraps(fun)
    def program(*args: Any, **options: Any) -> Any:
        lowered = compiled.lower(*args, **options)
        return (lowered.module, lowered.out_info) if return_shape else lowered.module

    return program


def eval_shape(fun: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Return the results of `fun(*args, **options)` with a `ShapeDtypeStruct` for each array.

    Nothing is computed. Arguments are arrays, `ShapeDtypeStruct`s, or any objects with a `shape`
    and a `dtype`.
    """
    known = Parameters.of(fun)
    check_call(fun, known.name, args, options)
    leaves, structure = tree.flatten((args, options))
    labels = [
        *(label for i, arg in enumerate(args) for label in labels_of(known.label(i), arg)),
        *(label for key in sorted(options) for label in labels_of(key, options[key])),
    ]
    structs = [
        _struct(leaf, f"argument {label} of {known.name}")
        for leaf, label in zip(leaves, labels, strict=True)
    ]
    if current() is None:
        described = [
            Leaf(label, label, signature_of_leaf(struct))
            for label, struct in zip(labels, structs, strict=True)
        ]
        traced, results = trace_call(
            fun, known.name, described, lambda each: tree.unflatten(structure, each)
        )
        return tree.unflatten(results, map(_as_struct, traced.results))
    found: list[tree.PyTreeDef] = []

    def flat(*tracers: Tracer) -> list[Tracer]:
        positional, named = tree.unflatten(structure, tracers)
        outs, kind = tree.flatten(fun(*positional, **named))
        found.append(kind)
        return [returned(x, i, kind, known.name) for i, x in enumerate(outs)]

    _, abstracts = trace_block(flat, [struct.abstract for struct in structs], known.name, labels)
    return tree.unflatten(found[-1], map(_as_struct, abstracts))


def _struct(leaf: Any, label: str) -> ShapeDtypeStruct:
    if isinstance(leaf, ShapeDtypeStruct):
        return leaf
    if is_array_like(leaf):
        abstract = abstract_of(leaf, label)
        return _as_struct(abstract)
    if hasattr(leaf, "shape") and hasattr(leaf, "dtype"):
        return ShapeDtypeStruct(leaf.shape, leaf.dtype)
    raise NotAnArrayError(
        point(f"{label} is {brief_with_type(leaf)}, which has no shape and dtype")
    )


def _as_struct(abstract: Abstract) -> ShapeDtypeStruct:
    type = abstract.type
    return ShapeDtypeStruct(type.shape, user_dtype(type.dtype), weak_type=abstract.weak)


@contextmanager
def ensure_compile_time_eval() -> Iterator[None]:
    """Run functions of arrays eagerly inside the block, even while a function is traced.

    Tracers cannot be used there.
    """
    with resumed(None):
        yield


@contextmanager
def named_scope(name: str) -> Iterator[None]:
    """Accept a scope name without effect, because values are named after variables.

    May be used as a context manager and as a decorator.
    """
    if not isinstance(name, str):
        raise ArgumentError(point(f"the name of a scope is a string, got {name!r}"))
    yield


def named_call(fun: Callable[..., Any], *, name: str | None = None) -> Callable[..., Any]:
    """Return `fun`; see `named_scope`."""
    check_function("named_call", fun)
    return fun
