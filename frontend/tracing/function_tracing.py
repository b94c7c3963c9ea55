"""Run a Python function once on tracers: as a program of its own, as a block of control flow, as a
part of the current block, or as a function that a transformation changes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shardir._imports.lazy_import import lazy_import
from shardir.frontend import source_locations
from shardir.frontend.arrays.abstract_value import AbstractValue
from shardir.frontend.config import config
from shardir.frontend.pytree import tree
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.shardings.mesh import Mesh
from shardir.frontend.shardings.partition_spec import PartitionSpec
from shardir.frontend.shardings.sharding import NamedSharding, Sharding as UserSharding
from shardir.frontend.source_locations import trace_boundary
from shardir.frontend.tracing.concrete_values import ConcreteValues, ManualBlock
from shardir.frontend.tracing.trace import (
    Origin,
    Trace,
    enter_trace,
    require_sharding_types,
    require_trace,
    use_trace,
)
from shardir.frontend.tracing.traced_program import TracedProgram
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.module import Block, Function
from shardir.ir.operation import Varying

if TYPE_CHECKING:
    from shardir.frontend.arrays.array import Array
    from shardir.frontend.tracing import leak_checker
else:
    leak_checker = lazy_import("shardir.frontend.tracing.leak_checker")


@dataclass(frozen=True, slots=True)
class TracedFunction:
    """A function that has been traced.

    The parameters of `function` are the declared ones, then one for each array in `captured`.
    `results` are the abstract results. `requested_shardings` are the shardings that the tokens in
    the function represent (see sharding_tokens.py).
    """

    function: Function
    params: tuple[AbstractValue, ...]
    results: tuple[AbstractValue, ...]
    captured: tuple["Array", ...]
    requested_shardings: tuple[tuple[UserSharding, int], ...]
    typed_results: tuple[NamedSharding | None, ...] | None = None
    """The shardings in the types of the results; `None` without Explicit axes."""


@trace_boundary
def trace_program(
    fun: Callable[[list[Tracer]], Sequence[Tracer]],
    params: Sequence[tuple[str, AbstractValue]],
    name: str,
    is_temporary: bool = False,
    mesh: Mesh | None = None,
    concrete_values: ConcreteValues | None = None,
) -> TracedFunction:
    """Trace `fun`, from a list of tracers to a sequence of tracers, as a separate program.

    `params` are the names and abstract values of the parameters. Enclosing traces are not visible.
    `is_temporary` marks a program that is traced again at every call. On `mesh`, which has Explicit
    axes, values have shardings in their types. `concrete_values` has the elements of the arguments.
    """
    source_locations.refresh_working_directory()
    program = TracedProgram(name, is_temporary)
    program.concrete_values = concrete_values
    trace = Trace(program, None, name)
    tracers = [trace.add_parameter(abstract, hint) for hint, abstract in params]
    if mesh is not None:
        require_sharding_types(program, NamedSharding(mesh, PartitionSpec())).is_stated = True
    if program.sharding_types is not None:
        for value, (_, abstract) in zip(trace.params, params, strict=True):
            program.sharding_types.declare(value, abstract.sharding)
    with enter_trace(trace):
        results = list(fun(tracers))
        _check_results(trace, results)
    # Derivatives keep the program; the elements must not live as long as they do.
    program.concrete_values = None
    program.forget_frames()
    for value in trace.params:
        program.named_value(value)
    block = Block(tuple(trace.params), tuple(trace.ops), tuple(r.value for r in results))
    body = program.rename_block(block)
    types = program.sharding_types
    if types is not None:
        body = types.state(body)
    arrays = tuple(array for array, _ in program.captured.values())
    traced = TracedFunction(
        Function(name, body, (None,) * len(results)),
        (*(abstract for _, abstract in params), *(array.abstract for array in arrays)),
        tuple(AbstractValue(r.value.type, r.weak_type) for r in results),
        arrays,
        tuple(program.requested_shardings) if types is None else types.requested_shardings(),
        None if types is None else tuple(types.result_sharding(r.value) for r in results),
    )
    program.captured.clear()
    tracers.clear()
    results.clear()
    if config.check_tracer_leaks:
        leak_checker.check_leaks(trace)
    return traced


@trace_boundary
def trace_block(
    fun: Callable[..., Sequence[Tracer]],
    params: Sequence[AbstractValue],
    what: str,
    names: Sequence[str] = (),
    origins: Sequence[Tracer | Varying | None] = (),
    decision: Tracer | Varying | None = None,
    inputs: Sequence[Tracer] | None = None,
    manual: ManualBlock | None = None,
) -> tuple[Block, tuple[AbstractValue, ...]]:
    """Trace `fun`, called with one tracer for each of `params`, as a block inside the current one.

    `what` names the block in errors (`the body of while_loop`); `names` are preferred names of its
    parameters. `origins` are the tracers that the first parameters represent, or the manual axes
    along which they vary. `decision` is the value that decides whether the block runs, or the axes
    along which that value varies. `inputs` are the tracers that the first parameters equal, for a
    block that runs once and where it is traced; `manual` is the manual computation whose block it
    is, for one that runs there. Return the block and its abstract results. The block may use
    tracers of the enclosing traces directly. A block that is discarded leaves no operations behind.
    """
    outer = require_trace(what)
    trace = Trace(outer.program, outer, what)
    trace.inputs = None if inputs is None else [tracer.value for tracer in inputs]
    trace.manual = manual
    hints = (*names, *[""] * (len(params) - len(names)))
    tracers = [
        trace.add_parameter(abstract, hint) for abstract, hint in zip(params, hints, strict=True)
    ]
    for param, origin in zip(trace.params, origins, strict=False):
        if origin is not None:
            trace.origins[param] = _origin(origin)
    trace.predicate = None if decision is None else _origin(decision)
    with enter_trace(trace):
        results = list(fun(*tracers))
        _check_results(trace, results)
    block = Block(tuple(trace.params), tuple(trace.ops), tuple(r.value for r in results))
    abstracts = tuple([r.abstract for r in results])
    tracers.clear()
    results.clear()
    if config.check_tracer_leaks:
        leak_checker.check_leaks(trace)
    return block, abstracts


def trace_inlined(fun: UserFunction, args: Sequence[Tracer], what: str) -> tuple[PyTree, bool]:
    """Return the result of `fun`, whose operations become a part of the current trace.

    Values of the enclosing traces may be used; those of `fun` leave it as its results only. Also
    return whether `fun` uses no values of the enclosing traces except `args`.
    """
    outer = require_trace(what)
    # The trace has not ended before the outer one: rules of `fun` may use its values until then.
    trace = Trace(outer.program, outer, what)
    with use_trace(trace):
        result = fun(*[Tracer(trace, x.value, x.weak_type, x.site) for x in args])
        leaves, structure = tree.flatten(result)
    outer.ops.extend(trace.ops)
    own = [isinstance(x, Tracer) and x.belongs_to(trace) for x in leaves]
    is_closed = not trace.has_captures and all(
        is_own or not isinstance(x, Tracer) for x, is_own in zip(leaves, own, strict=True)
    )
    wrapped = [
        Tracer(outer, x.value, x.weak_type, x.site) if is_own else x
        for x, is_own in zip(leaves, own, strict=True)
    ]
    leaves.clear()
    del result
    if config.check_tracer_leaks:
        leak_checker.check_leaks(trace)
    return tree.unflatten(structure, wrapped), is_closed


def _check_results(trace: Trace, results: Sequence[Tracer]) -> None:
    for result in results:
        result.check(trace)


def _origin(source: Tracer | Varying) -> Origin:
    return source.value if isinstance(source, Tracer) else source


def trace_function(
    fun: Callable[..., Sequence[Tracer]],
    params: Sequence[AbstractValue],
    name: str,
    names: Sequence[str] = (),
    origins: Sequence[Tracer | Varying | None] = (),
    inputs: Sequence[Tracer] | None = None,
) -> tuple[Function, tuple[AbstractValue, ...]]:
    """Trace a block as `trace_block` does, with final value names, for a transformation of the
    function.

    `append_block` inserts the transformed block into the current trace and substitutes arguments
    for its parameters. New values take names from `current_trace().program.names`.
    """
    outer = require_trace(name)
    outer.assign_names()

    def name_and_call(*tracers: Tracer) -> Sequence[Tracer]:
        # Parameters need names first: tracing inside may settle the names of its operations.
        for i, tracer in enumerate(tracers):
            outer.program.assign_name(tracer.value, names[i] if i < len(names) else f"arg{i}")
        return fun(*tracers)

    block, results = trace_block(name_and_call, params, name, origins=origins, inputs=inputs)
    return Function(name, outer.program.rename_block(block), (None,) * len(results)), results
