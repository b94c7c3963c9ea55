"""Calls of public functions outside of a trace: look up the compiled program, or compile it.

The cache key of a program consists of the pytree structure and static parts of the arguments, the
signatures of the arrays, and the trace context. A cache miss traces the function on tracers in
place of the arrays, lowers and compiles it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardir.custom_rules import rules_in_force
from shardir.frontend import tree
from shardir.frontend.array import Array, becomes, from_numpy, signature_of_numpy
from shardir.frontend.composing import Did, watched
from shardir.frontend.config import config
from shardir.frontend.eager import Eager, UnhashableError, static_key
from shardir.frontend.emptiness import without_nothings
from shardir.frontend.errors import ArgumentError, NotAnArrayError
from shardir.frontend.fingerprint import fingerprint
from shardir.frontend.locations import point
from shardir.frontend.lowering import Plan, lower
from shardir.frontend.mesh import current_mesh
from shardir.frontend.operands import abstract_of, as_tracer, is_number, no_array
from shardir.frontend.quoting import brief, brief_with_type
from shardir.frontend.runnable import Runnable
from shardir.frontend.running import conditions
from shardir.frontend.scalars import is_wide_int, numbers_as_arrays
from shardir.frontend.signature import ShapeDtypeStruct, Signature, signature_of
from shardir.frontend.trace import Traced, trace_program
from shardir.frontend.tracer import Tracer

MANY = 4096
"""Maximum number of programs in a cache; a full cache is cleared."""


MAX_LISTED_NUMBERS = 1024
"""Maximum number of elements in a list that an eager call accepts.

Each is an argument of the compiled program, and compilation with thousands of arguments takes
seconds.
"""

_NUMBERS = Array, Tracer, np.ndarray, np.generic, ShapeDtypeStruct, bool, int, float, complex


def is_array_like(x: Any) -> bool:
    """Return whether a pytree leaf is traced (arrays and numbers) rather than static."""
    return isinstance(x, _NUMBERS) or (
        (hasattr(x, "__array__") or hasattr(x, "__jax_array__")) and not isinstance(x, type)
    )


def _is_argument(x: Any) -> bool:
    """Return whether a leaf of an eager call is an argument of its program."""
    return is_array_like(x) and not is_wide_int(x)


Surroundings = tuple[object, object, object, object]


def surroundings() -> Surroundings:
    """Return the trace context: settings, mesh, registered rules and execution context."""
    return config.snapshot(), current_mesh(), rules_in_force(), conditions()


def unchanged(before: Surroundings) -> bool:
    """Return whether the trace context still consists of the same objects; equal ones do not
    count."""
    snapshot, mesh, rules, running = before
    same = config.snapshot() is snapshot and current_mesh() is mesh and rules_in_force() is rules
    return same and conditions() is running


_numbers: dict[tuple[type, bool], Signature] = {}


def signature_of_leaf(leaf: Any, name: str = "") -> Signature:
    """Return the signature of an argument; raises `NotAnArrayError` that names it."""
    if type(leaf) is Array:
        return leaf.signature
    if is_number(leaf):
        key = type(leaf), config.enable_x64
        if key not in _numbers:
            _numbers[key] = signature_of(abstract_of(leaf), None)
        return _numbers[key]
    if type(leaf) is np.ndarray and (known := signature_of_numpy(leaf)) is not None:
        return known[0]
    if isinstance(leaf, Tracer):
        leaf.check(None)
    if isinstance(leaf, ShapeDtypeStruct):
        return leaf.signature
    return signature_of(abstract_of(leaf, name), None)


@dataclass(frozen=True)
class Leaf:
    """An argument of a program: its name in the program, its description in errors, its
    signature."""

    name: str
    word: str
    signature: Signature


def trace_call(
    fun: Callable[..., Any],
    name: str,
    leaves: Sequence[Leaf],
    rebuild: Callable[[Iterator[Tracer]], tuple[Sequence[Any], dict[str, Any]]],
    is_temporary: bool = False,
) -> tuple[Traced, tree.PyTreeDef]:
    """Trace a call of `fun`; `rebuild` puts tracers in place of the leaves.

    Return the traced program and the pytree structure of its results. Raises `NotAnArrayError` when
    `fun` returns anything other than arrays and numbers.
    """
    structure: list[tree.PyTreeDef] = []

    def flat(tracers: list[Tracer]) -> list[Tracer]:
        args, options = rebuild(iter(tracers))
        results, found = tree.flatten(without_nothings(fun(*args, **options)))
        structure.append(found)
        return [returned(result, i, found, name) for i, result in enumerate(results)]

    params = [(leaf.name, leaf.signature.abstract) for leaf in leaves]
    return trace_program(flat, params, name, is_temporary), structure[0]


def returned(result: Any, i: int, structure: tree.PyTreeDef, name: str) -> Tracer:
    """Return a result of a traced function as a tracer; an error names its position in the
    result."""
    if not is_array_like(result):
        place = "".join(f"[{entry!r}]" for entry in structure.paths()[i])
        raise NotAnArrayError(
            point(
                f"{name} returned {brief_with_type(result)}"
                f"{f' at result{place}' if place else ''}, which is no array; return arrays, "
                "numbers and containers of them only"
            )
        )
    return as_tracer(result)


def call_eagerly(eager: Eager, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Call a public function outside of a trace."""
    given = args, options
    placed: dict[int, Any] = {}
    if eager.cached and any(type(x) is np.ndarray for x in args):
        args, placed = _taken(args, eager.static_positions)
        if placed and not all(x.flags.c_contiguous for x in placed.values()):
            # The native call cache cannot read the original arguments, but it reads these.
            return eager.thing(*args, **options)
    wrapped = (
        numbers_as_arrays(args, options, eager.static_positions, eager.static)
        if eager.cached
        else None
    )
    if wrapped is not None:
        args, options = wrapped
    leaves: list[Any] = []
    shape: list[Any] = []
    try:
        for i, arg in enumerate(args):
            _describe(arg, i in eager.static_positions, leaves, shape)
        for key in options:
            shape.append(key)
            _describe(options[key], key in eager.static, leaves, shape)
    except UnhashableError as error:
        raise _unhashable(eager, args, options) from error
    if eager.cached and len(leaves) > MAX_LISTED_NUMBERS:
        for arg in (*args, *options.values()):
            _check_not_listed(arg)
    signatures = tuple([x.signature if type(x) is Array else signature_of_leaf(x) for x in leaves])
    where = (tuple(shape), signatures, surroundings())
    there = eager.programs.get(where) if eager.cached else None
    if there is None:
        there = _make(eager, args, options, signatures)
        if eager.cached:
            if len(eager.programs) >= MANY:
                eager.programs.clear()
            eager.programs[where] = there
    program, structure, more = there
    taken = leaves
    if program.views:
        # A result must not share memory with a NumPy array, which is writable.
        taken = [from_numpy(x) if type(x) is np.ndarray else x for x in leaves]
    results = program(taken + more)
    if placed:
        leaves = [placed.get(id(x), x) for x in leaves]
    made = results[0] if structure is None else tree.unflatten(structure, results)
    # The types of the arguments do not identify a call with a number that is part of the program.
    native = eager.cached and not any(map(is_wide_int, (*args, *options.values())))
    done, launch = watched.get(), program.launch if native else None
    if done is not None:
        if not unchanged(where[2]):
            launch = None
        done.append(Did((*given[0], *given[1].values()), launch, leaves, structure, made))
    elif launch is not None and unchanged(where[2]):
        from shardir.frontend.answers import remember

        remember(eager.thing, eager.kept_out, launch, structure, *given, leaves)
    return made


def _taken(args: tuple[Any, ...], static: frozenset[int]) -> tuple[tuple[Any, ...], dict[int, Any]]:
    """Return the arguments with converted or non-contiguous NumPy arrays replaced by arrays.

    Also return the original of each replaced argument, by the id of the replacement.
    """
    made, placed = [], {}
    for i, x in enumerate(args):
        array = x
        if type(x) is np.ndarray and i not in static and _is_converted(x):
            array = from_numpy(x)
            placed[id(array)] = x
        made.append(array)
    return (tuple(made), placed) if placed else (args, placed)


def _is_converted(array: Any) -> bool:
    """Return whether importing a NumPy array makes another array without an error."""
    known = signature_of_numpy(array)
    if known is None or (known[1] is array.dtype and array.flags.c_contiguous):
        return False
    return becomes(array, known[1])


class _Place:
    """Placeholder of an array in a cache key."""

    def __repr__(self) -> str:
        return "*"


PLACE = _Place()


def _describe(arg: Any, static: bool, leaves: list[Any], shape: list[Any]) -> None:
    """Append the arrays of an argument to `leaves` and the rest of its cache key to `shape`."""
    if static:
        shape.append(static_key(arg))
    elif type(arg) is Array or _is_argument(arg):
        leaves.append(arg)
        shape.append(PLACE)
    elif arg is None or type(arg) is int:
        shape.append(arg)
    else:
        parts, structure = tree.flatten(arg)
        shape.append(structure)
        for part in parts:
            if _is_argument(part):
                leaves.append(part)
                shape.append(PLACE)
            else:
                shape.append(static_key(part))


def _check_not_listed(arg: Any) -> None:
    """Raise `NotAnArrayError` for a long list of numbers, which should be one array."""
    if not isinstance(arg, (list, tuple)):
        return
    parts = tree.leaves(arg)
    if len(parts) > MAX_LISTED_NUMBERS and all(
        is_number(part) or isinstance(part, np.generic) for part in parts
    ):
        raise no_array(
            arg,
            "",
            f"is a {type(arg).__name__} of {len(parts)} numbers, and at most {MAX_LISTED_NUMBERS} "
            "are accepted; make it one array with snp.array",
        )


def _filled(arg: Any, static: bool, tracers: Iterator[Tracer]) -> Any:
    """Return the argument with tracers in place of its arrays."""
    if static or arg is None or is_wide_int(arg):
        return arg
    if is_array_like(arg):
        return next(tracers)
    parts, structure = tree.flatten(arg)
    return tree.unflatten(
        structure, [next(tracers) if _is_argument(part) else part for part in parts]
    )


def _make(
    eager: Eager,
    args: tuple[Any, ...],
    options: dict[str, Any],
    signatures: tuple[Signature, ...],
) -> tuple[Runnable, tree.PyTreeDef | None, list[Array]]:
    """Trace and compile a call.

    Return the program, the pytree structure of its results (`None` for a single array), and the
    captured arrays that it takes in addition to the arguments.
    """
    name = eager.name
    labels: list[str] = []
    for i, arg in enumerate(args):
        positional = i < len(eager.positional)
        base = (
            eager.positional[i] if positional else f"{eager.variadic}.{i - len(eager.positional)}"
        )
        if not (positional and i in eager.static_positions):
            labels.extend(_labels(base, arg))
    for key, option in options.items():
        if key not in eager.static:
            labels.extend(_labels(key, option))

    def rebuild(tracers: Iterator[Tracer]) -> tuple[list[Any], dict[str, Any]]:
        filled = [_filled(a, i in eager.static_positions, tracers) for i, a in enumerate(args)]
        return filled, {k: _filled(v, k in eager.static, tracers) for k, v in options.items()}

    described = [
        Leaf(label, f"argument {label} of {name}", signature)
        for label, signature in zip(labels, signatures, strict=True)
    ]
    traced, structure = trace_call(eager.fun, name, described, rebuild, not eager.cached)
    plan = lower(
        traced,
        [leaf.signature.sharding for leaf in described],
        [None] * len(traced.results),
        [leaf.word for leaf in described],
        config.uneven,
    )
    containers = None if structure.is_leaf() else structure
    if eager.cached:
        return Runnable(plan, traced.results, traced.captured), containers, []
    return once(plan, traced), containers, list(traced.captured)


def _labels(base: str, arg: Any) -> list[str]:
    """Return names for the arrays of an argument."""
    if arg is None or is_wide_int(arg):
        return []
    if is_array_like(arg):
        return [base]
    parts, structure = tree.flatten(arg)
    return [
        ".".join(map(str, (base, *path)))
        for path, part in zip(structure.paths(), parts, strict=True)
        if _is_argument(part)
    ]


_programs: dict[Any, Runnable] = {}


def once(plan: Plan, traced: Traced) -> Runnable:
    """Return the compiled program of a function that is traced at every call.

    Two calls that trace to the same program share it; captured arrays are arguments.
    """
    weak = tuple(abstract.weak for abstract in traced.results)
    key = fingerprint(plan.module), plan.seen, plan.devices, weak, surroundings()
    found = _programs.get(key)
    if found is None:
        if len(_programs) >= MANY:
            _programs.clear()
        found = _programs[key] = Runnable(plan, traced.results, ())
    return found


def run_fleeting(
    fun: Callable[..., Any],
    name: str,
    leaves: Sequence[Any],
    labels: Sequence[str],
    uneven: str | None = None,
) -> Any:
    """Trace `fun` for this call outside of a trace, run it on `leaves` and return its pytree of
    results.

    `uneven` is the option of `jit`; the setting applies if it is `None`.
    """
    described = [
        Leaf(label, f"argument {label} of {name}", signature_of_leaf(leaf, f"{label} of {name}"))
        for label, leaf in zip(labels, leaves, strict=True)
    ]
    traced, structure = trace_call(fun, name, described, lambda each: (list(each), {}), True)
    placed = [leaf.signature.sharding for leaf in described]
    free = [None] * len(traced.results)
    mode = config.uneven if uneven is None else uneven
    plan = lower(traced, placed, free, [leaf.word for leaf in described], mode)
    results = once(plan, traced)([*leaves, *traced.captured])
    return tree.unflatten(structure, results)


def _unhashable(eager: Eager, args: tuple[Any, ...], options: dict[str, Any]) -> ArgumentError:
    """Return the error for a static argument that cannot be hashed."""
    named = [
        *((eager.positional[i], args[i]) for i in sorted(eager.static_positions) if i < len(args)),
        *((name, value) for name, value in options.items() if name in eager.static),
    ]
    for name, value in named:
        try:
            static_key(value)
        except UnhashableError:
            return ArgumentError(
                point(
                    f"argument {name} of {eager.name} is {brief(value)}; it must be known and "
                    "hashable, because it determines the program"
                )
            )
    for arg in (*args, *options.values()):
        for leaf in tree.leaves(arg):
            if not is_array_like(leaf):
                abstract_of(leaf)  # Raises an error in which `refuse` names the argument.
    return ArgumentError(point(f"{eager.name} has an argument that cannot be hashed"))
