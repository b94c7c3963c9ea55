"""`custom_vmap`: functions with a custom batching rule."""

from collections.abc import Sequence
from typing import final

from shardir.errors import VectorizeError
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.arrays.abstract_value import AbstractValue
from shardir.frontend.call_signatures import with_method_errors
from shardir.frontend.dispatch.traced_calls import result_tracer
from shardir.frontend.errors import ArgumentError, BatchError
from shardir.frontend.lax.control_flow.loops import map as map_slices
from shardir.frontend.pytree import tree
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracebacks import traceback_boundary
from shardir.frontend.tracing.operands import convert
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.transforms.custom_function import CustomFunction
from shardir.frontend.transforms.custom_rules import CustomCall, Primal, check_rule_structure
from shardir.ir.host_function import HostFunction
from shardir.ir.module import Block

BatchingRule = UserFunction


@with_method_errors
@final
class custom_vmap(CustomFunction[PyTree]):
    """A function with a custom batching rule.

    `f = custom_vmap(fun)`, then `f.def_vmap(rule)` with `rule(axis_size, in_batched, *args)` that
    returns `(results, out_batched)`: the results of `f` for all slices of `args`. `in_batched` has
    a bool for each array of `args`, which states whether its axis 0 is mapped; `out_batched` has
    one for each result.

    The rule applies wherever `vmap` maps a call of `f`, including inside of loops and other
    functions. Differentiation uses `fun`, and mapping the derivative does not use the rule. Raises
    `VectorizeError` for a missing rule, or when `fun` captures a mapped value, and `BatchError` for
    an invalid result of the rule.
    """

    @with_argument_errors
    def __init__(self, fun: UserFunction) -> None:
        if not callable(fun):
            raise ArgumentError(with_location(f"custom_vmap takes a function, got {fun!r}"))
        super().__init__(fun, frozenset())
        self._rule: BatchingRule | None = None

    @property
    def vmap_rule(self) -> BatchingRule | None:
        """The rule, or `None` if it is not set."""
        return self._rule

    def def_vmap(self, vmap_rule: BatchingRule) -> BatchingRule:
        """Set the rule and return it; may be used as a decorator."""
        if not callable(vmap_rule):
            raise ArgumentError(
                with_location(f"def_vmap of {self._name} takes a function, got {vmap_rule!r}")
            )
        self._rule = vmap_rule
        return vmap_rule

    def _check_rule(self) -> None:
        """Do nothing, because only mapped calls need the rule."""

    def _emit(self, call: CustomCall, primal: Primal) -> PyTree:
        def batching(flags: Sequence[bool], size: int) -> Block:
            return _trace_batching_rule(self._rule, call, primal, flags, size)

        return call.emit_operation(
            "checkpoint",
            primal,
            save=("everything",),
            barrier=False,
            batching=HostFunction(self._name, batching),
        )


@traceback_boundary
def sequential_vmap(f: UserFunction) -> custom_vmap:
    """Return `f` with a batching rule that loops over its slices."""
    result = custom_vmap(f)

    def rule(axis_size: int, in_batched: PyTree, *args: PyTree) -> tuple[PyTree, PyTree]:
        leaves, structure = tree.flatten(args)
        mapped = tree.leaves(tuple(in_batched))
        chosen = [x for x, flag in zip(leaves, mapped, strict=True) if flag]

        def one(slices: Sequence[object]) -> PyTree:
            given = iter(slices)
            pairs = zip(leaves, mapped, strict=True)
            return result(*tree.unflatten(structure, [next(given) if f else x for x, f in pairs]))

        out = map_slices(one, chosen)
        return out, tree.map(lambda _: True, out)

    result.def_vmap(rule)
    return result


def _trace_batching_rule(
    rule: BatchingRule | None, call: CustomCall, primal: Primal, flags: Sequence[bool], size: int
) -> Block:
    """Return the rule as a block of the operands, batched where flagged, and of the captures."""
    if rule is None:
        raise VectorizeError(
            with_location(
                f"custom_vmap {call.name} is mapped and has no rule; give it one with def_vmap"
            )
        )
    what, count = f"the rule of {call.name}", len(call.abstracts)
    if any(flags[count:]):
        raise VectorizeError(
            with_location(f"{call.name} captures a mapped value; pass it as an argument")
        )

    def flat(*leaves: Tracer) -> list[Tracer]:
        in_batched = call.diff_arguments(list(flags[:count]))
        result = rule(size, list(in_batched), *call.all_arguments(leaves))
        if not (isinstance(result, (tuple, list)) and len(result) == 2):
            raise BatchError(
                with_location(f"{what} must return (results, out_batched); it returned {result!r}")
            )
        outs, structure = tree.flatten(result[0])
        model = "the function's results"
        check_rule_structure(BatchError, what, "results", structure, model, primal.structure)
        mapped, flag_structure = tree.flatten(result[1])
        check_rule_structure(
            BatchError, what, "out_batched", flag_structure, model, primal.structure
        )
        found = []
        for i, (x, flag, one) in enumerate(zip(outs, mapped, primal.results, strict=True)):
            tracer = result_tracer(x, i, structure, what)
            expected = _batched_abstract(one, size) if flag else one
            if tracer.shape != expected.type.shape:
                raise BatchError(
                    with_location(
                        f"{what} gives {tracer.value.type}, and it must be {expected.type}"
                    )
                )
            found.append(convert(tracer, expected.type.dtype))
        return found

    pairs = zip(call.abstracts, flags, strict=False)
    params = [_batched_abstract(abstract, size) if flag else abstract for abstract, flag in pairs]
    block, _ = call.trace_rule(flat, params, what, call.names, call.tracers)
    whole, closed = primal.parametrize_captures(block, call, what)
    return Block((*whole.params, *closed), whole.ops, whole.returns)


def _batched_abstract(abstract: AbstractValue, size: int) -> AbstractValue:
    type = abstract.type
    return AbstractValue(type.with_shape((size, *type.shape)), abstract.weak)
