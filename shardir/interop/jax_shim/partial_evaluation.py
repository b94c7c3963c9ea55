"""JAX's partial evaluation, as far as libraries use it without reading its programs.

Flax's `scan` evaluates its body in part to find the results that are the same in all iterations.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, final

from shardir.frontend.arrays.signature import ShapeDtypeStruct
from shardir.frontend.dispatch.jit import jit
from shardir.frontend.pytree import tree
from shardir.frontend.tracing.function_tracing import trace_block
from shardir.frontend.tracing.operands import as_tracer
from shardir.frontend.tracing.promotion import user_dtype
from shardir.frontend.tracing.trace import append_block, current_trace, wrap_value
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.tracing.typeof import find_explicit_sharding
from shardir.interop.jax_shim.internals import Placeholder
from shardir.ir.module import Block, Op, Value

WHAT = "a function that is evaluated in part"


@final
class PartialVal(tuple[Any, Any]):
    """An abstract value that is unknown and `None`, or `None` and a known value."""

    __slots__ = ()

    @classmethod
    def unknown(cls, aval: ShapeDtypeStruct) -> "PartialVal":
        return cls((aval, None))

    @classmethod
    def known(cls, value: object) -> "PartialVal":
        return cls((None, value))

    def is_known(self) -> bool:
        return self[0] is None


@final
class WrappedFunction:
    """A function, as `wrap_init` returns it."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.f = self.call_wrapped = function


def wrap_init(
    function: Callable[..., Any], params: Any = None, *, debug_info: object = None
) -> WrappedFunction:
    """Return a function with the named arguments `params`."""
    return WrappedFunction(partial(function, **(params or {})))


def make_debug_info(*args: object, **options: object) -> None:
    """Return `None`: errors show the current lines of the program."""


def flatten_fun_nokwargs(
    function: WrappedFunction, in_tree: tree.PyTreeDef
) -> tuple[WrappedFunction, Callable[[], tree.PyTreeDef]]:
    """Return the function of leaves, and a function that returns the structure of its results."""
    structures = []

    def flat(*leaves: Any) -> list[Any]:
        results, structure = tree.flatten(function.f(*tree.unflatten(in_tree, leaves)))
        structures.append(structure)
        return results

    return WrappedFunction(flat), lambda: structures[-1]


def trace_to_jaxpr_nounits(
    function: WrappedFunction, inputs: Sequence[PartialVal]
) -> tuple[Placeholder, list[PartialVal], tuple[()]]:
    """Return the results of a function, of which those are known that depend on known inputs only.

    The first result is a placeholder of the program that computes the others.
    """
    kinds: list[ShapeDtypeStruct | None] = []

    def evaluate() -> list[Tracer]:
        known, unknown = _evaluate_known(function, inputs)
        kinds.extend(unknown)
        return known

    values = iter(evaluate() if current_trace() is not None else jit(evaluate)())
    results = [
        PartialVal.known(next(values)) if kind is None else PartialVal.unknown(kind)
        for kind in kinds
    ]
    return Placeholder("jax.extend.core.Jaxpr", "the library"), results, ()


def _evaluate_known(
    function: WrappedFunction, inputs: Sequence[PartialVal]
) -> tuple[list[Tracer], list[ShapeDtypeStruct | None]]:
    """Append the operations of the known results to the current trace.

    Return the known results, and the abstract value of each unknown result and `None` for the known
    ones.
    """

    def flat(*tracers: Tracer) -> list[Tracer]:
        given = iter(tracers)
        results = function.f(*(x[1] if x.is_known() else next(given) for x in inputs))
        return [as_tracer(result) for result in results]

    structs = [x[0] for x in inputs if not x.is_known()]
    abstracts = [replace(s.abstract, sharding=find_explicit_sharding(s)) for s in structs]
    block, made = trace_block(flat, abstracts, WHAT)
    unknown = set(block.params)
    for op in block.ops:
        if not unknown.isdisjoint(_used_values(op)):
            unknown.update(op.results)
    returns = [value for value in block.returns if value not in unknown]
    needed, ops = set(returns), []
    for op in reversed(block.ops):
        if not needed.isdisjoint(op.results):
            needed.update(_used_values(op))
            ops.append(op)
    values = append_block(Block((), tuple(reversed(ops)), tuple(returns)), (), block)
    pairs = list(zip(block.returns, made, strict=True))
    weak = [abstract.weak for value, abstract in pairs if value not in unknown]
    known = [wrap_value(value, is_weak) for value, is_weak in zip(values, weak, strict=True)]
    return known, [
        ShapeDtypeStruct(abstract.type.shape, user_dtype(abstract.type.dtype))
        if value in unknown
        else None
        for value, abstract in pairs
    ]


def _used_values(op: Op) -> Iterator[Value]:
    """Yield the values that an operation and its blocks use."""
    yield from op.operands
    for block in op.blocks:
        yield from block.returns
        for inner in block.ops:
            yield from _used_values(inner)
