"""`custom_vmap`: functions with a custom batching rule."""

from collections.abc import Callable, Sequence
from typing import Any, final

from shardir.errors import VectorizeError
from shardir.frontend import tree
from shardir.frontend.calling import returned
from shardir.frontend.custom import Call, Primal
from shardir.frontend.custom_function import CustomFunction
from shardir.frontend.errors import ArgumentError, BatchError
from shardir.frontend.locations import point
from shardir.frontend.operands import convert
from shardir.frontend.promotion import Abstract
from shardir.frontend.tracer import Tracer
from shardir.frontend.tree_checks import shown
from shardir.hosted import Hosted
from shardir.ir import Block

Rule = Callable[..., Any]


@final
class custom_vmap(CustomFunction):
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

    def __init__(self, fun: Callable[..., Any]) -> None:
        if not callable(fun):
            raise ArgumentError(point(f"custom_vmap takes a function, got {fun!r}"))
        super().__init__(fun, frozenset())
        self._rule: Rule | None = None

    def def_vmap(self, vmap_rule: Rule) -> Rule:
        """Set the rule and return it; may be used as a decorator."""
        if not callable(vmap_rule):
            raise ArgumentError(
                point(f"def_vmap of {self._name} takes a function, got {vmap_rule!r}")
            )
        self._rule = vmap_rule
        return vmap_rule

    def _check_rule(self) -> None:
        """Do nothing, because only mapped calls need the rule."""

    def _emit(self, call: Call, primal: Primal) -> Any:
        def batching(flags: Sequence[bool], size: int) -> Block:
            return _traced(self._rule, call, primal, flags, size)

        return call.applied(
            "checkpoint",
            primal,
            save=("everything",),
            barrier=False,
            batching=Hosted(self._name, batching),
        )


def sequential_vmap(fun: Callable[..., Any]) -> custom_vmap:
    """Return `fun` with a batching rule that loops over its slices."""
    # lax.loops imports modules that import this one.
    from shardir.frontend.lax.loops import map as map_slices

    made = custom_vmap(fun)

    def rule(axis_size: int, in_batched: Any, *args: Any) -> Any:
        leaves, structure = tree.flatten(args)
        mapped = tree.leaves(tuple(in_batched))
        chosen = [x for x, flag in zip(leaves, mapped, strict=True) if flag]

        def one(slices: Sequence[Any]) -> Any:
            given = iter(slices)
            pairs = zip(leaves, mapped, strict=True)
            return made(*tree.unflatten(structure, [next(given) if f else x for x, f in pairs]))

        out = map_slices(one, chosen)
        return out, tree.map(lambda _: True, out)

    made.def_vmap(rule)
    return made


def _traced(
    rule: Rule | None, call: Call, primal: Primal, flags: Sequence[bool], size: int
) -> Block:
    """Return the rule as a block of the operands, batched where flagged, and of the captures."""
    if rule is None:
        raise VectorizeError(
            point(f"custom_vmap {call.name} is mapped and has no rule; give it one with def_vmap")
        )
    what, count = f"the rule of {call.name}", len(call.abstracts)
    if any(flags[count:]):
        raise VectorizeError(point(f"{call.name} captures a mapped value; pass it as an argument"))

    def flat(*leaves: Tracer) -> list[Tracer]:
        in_batched = call.moving(list(flags[:count]))
        made = rule(size, list(in_batched), *call.filled(leaves))
        if not (isinstance(made, (tuple, list)) and len(made) == 2):
            raise BatchError(
                point(f"{what} must return (results, out_batched); it returned {made!r}")
            )
        outs, structure = tree.flatten(made[0])
        if structure != primal.structure:
            raise BatchError(
                point(
                    f"{what} gives results in {shown(structure)}, and they are in "
                    f"{shown(primal.structure)}"
                )
            )
        mapped, flag_structure = tree.flatten(made[1])
        if flag_structure != primal.structure:
            raise BatchError(
                point(f"{what} gives out_batched in {shown(flag_structure)}, and results are in "
                      f"{shown(primal.structure)}")
            )  # fmt: skip
        found = []
        for i, (x, flag, one) in enumerate(zip(outs, mapped, primal.results, strict=True)):
            tracer = returned(x, i, structure, what)
            wanted = _many(one, size) if flag else one
            if tracer.shape != wanted.type.shape:
                raise BatchError(
                    point(f"{what} gives {tracer.value.type}, and it must be {wanted.type}")
                )
            found.append(convert(tracer, wanted.type.dtype))
        return found

    pairs = zip(call.abstracts, flags, strict=False)
    params = [_many(abstract, size) if flag else abstract for abstract, flag in pairs]
    block, _ = call.trace_rule(flat, params, what, call.names, call.tracers)
    whole, closed = primal.given(block, call, what)
    return Block((*whole.params, *closed), whole.ops, whole.returns)


def _many(abstract: Abstract, size: int) -> Abstract:
    type = abstract.type
    return Abstract(type.with_shape((size, *type.shape)), abstract.weak)
