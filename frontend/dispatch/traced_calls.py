"""Calls that are traced: checks and signatures of their arguments, and the trace."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from inspect import isgeneratorfunction

import numpy as np

from shardir.frontend.arrays.array import Array, signature_of_numpy
from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.arrays.float0 import replace_float0
from shardir.frontend.arrays.numpy_conversion import abstract_of, is_number
from shardir.frontend.arrays.signature import ArraySignature, ShapeDtypeStruct, signature_of
from shardir.frontend.config import config
from shardir.frontend.errors import ArgumentError, NotAnArrayError, ShardingError
from shardir.frontend.pytree import tree
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.quoting import brief, brief_with_type
from shardir.frontend.shardings.mesh import Mesh, current_mesh
from shardir.frontend.shardings.sharding import Sharding
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.concrete_values import ConcreteValues
from shardir.frontend.tracing.function_tracing import TracedFunction, trace_program
from shardir.frontend.tracing.operands import as_tracer
from shardir.frontend.tracing.parameters import Dynamic, Parameters
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.tracing.typeof import ShapedArray


@dataclass(frozen=True)
class ArgumentLeaf:
    """An argument of a program: its name in the program, its description in errors, its
    signature."""

    name: str
    description: str
    signature: ArraySignature


_ARRAY_TYPES = (
    *(Array, Tracer, np.ndarray, np.generic, ShapeDtypeStruct, ShapedArray),
    *(bool, int, float, complex),
)


def is_array_like(x: object) -> bool:
    """Return whether a pytree leaf is traced (arrays and numbers) rather than static."""
    return isinstance(x, _ARRAY_TYPES) or (
        (hasattr(x, "__array__") or hasattr(x, "__jax_array__")) and not isinstance(x, type)
    )


_number_signatures: dict[tuple[type, bool], ArraySignature] = {}


def signature_of_leaf(leaf: object, name: str = "") -> ArraySignature:
    """Return the signature of an argument; raises `NotAnArrayError` that names it."""
    if type(leaf) is Array:
        return leaf.signature
    if is_number(leaf):
        key = type(leaf), config.enable_x64
        if key not in _number_signatures:
            _number_signatures[key] = signature_of(abstract_of(leaf), None)
        return _number_signatures[key]
    if type(leaf) is np.ndarray and (known := signature_of_numpy(leaf)) is not None:
        return known[0]
    if isinstance(leaf, Tracer):
        leaf.check(None)
    if isinstance(leaf, ShapeDtypeStruct):
        return leaf.signature
    return signature_of(abstract_of(leaf, name), None)


def check_traceable(fun: PyTree, word: str) -> UserFunction:
    """Return `fun`, a function that can be traced; raises `ArgumentError` for anything else."""
    if not callable(fun):
        raise ArgumentError(with_location(f"{word} takes a function, got {brief(fun)}"))
    if isinstance(fun, staticmethod):
        raise ArgumentError(
            with_location(
                f"{word} takes a function, got a staticmethod; write @staticmethod above @{word}"
            )
        )
    if isgeneratorfunction(fun):
        raise ArgumentError(
            with_location(
                f"{word} takes a function that returns its results, and {fun.__name__} yields "
                "them; return a tuple of them"
            )
        )
    known: UserFunction = fun
    return known


def signatures_of(
    parameters: Parameters, leaves: list[PyTree], dynamic: Dynamic
) -> tuple[ArraySignature, ...]:
    """Return the signatures of the leaves of the `dynamic` arguments.

    Raises `NotAnArrayError` that names the invalid argument.
    """
    try:
        return tuple([signature_of_leaf(leaf) for leaf in leaves])
    except NotAnArrayError:
        # Check each leaf again, now with its name.
        args, options = dynamic
        labels = parameters.labels(args, options)
        for leaf, label in zip(leaves, labels, strict=True):
            check_argument_leaf(parameters, leaf, label)
        raise


def check_argument_leaf(parameters: Parameters, leaf: object, label: str) -> None:
    """Raise `NotAnArrayError` unless the argument named `label` can be traced."""
    name = parameters.name
    if not is_array_like(leaf):
        raise NotAnArrayError(
            with_location(
                f"argument {label} of {name} is {brief_with_type(leaf)}, which "
                "is not an array; make it static (static_argnums, static_argnames), or register "
                "its class as a container (shardir.tree)"
            )
        )
    signature_of_leaf(leaf, f"argument {label} of {name}")


def resolve_argument_sharding(leaf: ArgumentLeaf, requested: Sharding | None) -> Sharding | None:
    """Return the sharding of an argument: its own, which must be equivalent to the requested
    one."""
    given, rank = leaf.signature.sharding, leaf.signature.abstract.type.rank
    if requested is None or given is None:
        return given or requested
    if given.device_assignment != requested.device_assignment or not given.is_equivalent_to(
        requested, rank
    ):
        raise ShardingError(
            with_location(
                f"{leaf.description} is placed as {given}, and in_shardings requests {requested}; "
                "move it there with device_put, or set its entry of in_shardings to None"
            )
        )
    return given


def trace_call(
    fun: UserFunction,
    name: str,
    leaves: Sequence[ArgumentLeaf],
    rebuild: Callable[[Iterator[Tracer]], tuple[Sequence[PyTree], dict[str, PyTree]]],
    is_temporary: bool = False,
    shardings: Sequence[Sharding | None] | None = None,
    concrete_values: ConcreteValues | None = None,
) -> tuple[TracedFunction, tree.PyTreeDef]:
    """Trace a call of `fun`; `rebuild` puts tracers in place of the leaves.

    `shardings` are the shardings of the leaves if they differ from those of their signatures, and
    `concrete_values` has their elements.

    Return the traced program and the pytree structure of its results. Raises `NotAnArrayError` when
    `fun` returns anything other than arrays and numbers.
    """
    structure: list[tree.PyTreeDef] = []

    def flat(tracers: list[Tracer]) -> list[Tracer]:
        args, options = rebuild(iter(tracers))
        results, found = tree.flatten(replace_float0(fun(*args, **options)))
        structure.append(found)
        return [result_tracer(result, i, found, name) for i, result in enumerate(results)]

    if shardings is None:
        shardings = [leaf.signature.sharding for leaf in leaves]
    params = [
        (leaf.name, leaf.signature.abstract)
        if sharding is None or not sharding.has_explicit_axes
        else (leaf.name, replace(leaf.signature.abstract, sharding=sharding))
        for leaf, sharding in zip(leaves, shardings, strict=True)
    ]
    mesh = current_mesh()
    if mesh is not None and (not mesh.has_explicit_axes or _is_elsewhere(shardings, mesh)):
        mesh = None
    traced = trace_program(flat, params, name, is_temporary, mesh, concrete_values)
    return traced, structure[0]


def _is_elsewhere(shardings: Sequence[Sharding | None], mesh: Mesh) -> bool:
    """Return whether an argument is on other devices than those of the mesh."""
    return any(
        sharding is not None and sharding.device_assignment != mesh.device_assignment
        for sharding in shardings
    )


def result_tracer(result: ArrayLike, i: int, structure: tree.PyTreeDef, name: str) -> Tracer:
    """Return a result of a traced function as a tracer; an error names its position in the
    result."""
    if not is_array_like(result):
        place = "".join(f"[{entry!r}]" for entry in structure.paths()[i])
        raise NotAnArrayError(
            with_location(
                f"{name} returned {brief_with_type(result)}"
                f"{f' at result{place}' if place else ''}, which is not an array; return arrays, "
                "numbers and containers of them only"
            )
        )
    return as_tracer(result)


_LEAF = tree.structure(0)


def array_result(result: PyTree, name: str) -> Tracer:
    """Return the result of a traced function that returns one array as a tracer."""
    return result_tracer(result, 0, _LEAF, name)
