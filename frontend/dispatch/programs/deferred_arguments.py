"""Arguments whose shardings are chosen when the traced program is known.

If two calls differ only in the shardings of their arguments, and the arguments of the second call
agree with the shardings that were chosen for the first one, the second call uses these shardings
too. The state of a training step, which is uncommitted in the first call and sharded in the second
one, is therefore planned once.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, final

from shardir.frontend.arrays.signature import ArraySignature
from shardir.frontend.dispatch.call_table import MAX_CACHED_PROGRAMS, trace_context
from shardir.frontend.dispatch.programs.donation import reusable_parameters
from shardir.frontend.dispatch.programs.lowering import LoweredProgram
from shardir.frontend.dispatch.programs.runnable import default_pipeline
from shardir.frontend.errors import ArgumentError
from shardir.frontend.pytree import tree
from shardir.frontend.shardings.deferred_sharding import (
    ChosenShardings,
    DeferredSharding,
    UnshardedProgram,
    mesh_of_requests,
)
from shardir.frontend.shardings.mesh import current_mesh
from shardir.frontend.shardings.sharding import NamedSharding, Sharding
from shardir.frontend.source_locations import with_location


def find_deferred(requests: Sequence[object], name: str) -> DeferredSharding | None:
    """Return the deferred request for arguments of the function `name`, `None` without one; raise
    `ArgumentError` for several different ones."""
    found = list(dict.fromkeys(each for each in requests if isinstance(each, DeferredSharding)))
    if len(found) > 1:
        raise ArgumentError(
            with_location(
                f"in_shardings of {name} has {found[0]!r} and {found[1]!r}; one plan shards all "
                "arguments, so use the same entry for all of them"
            )
        )
    return found[0] if found else None


def stated_shardings(
    signatures: Sequence[ArraySignature], requests: Sequence[Sharding | None]
) -> tuple[Sharding | None, ...]:
    """Return the sharding that is requested for each argument, or the one that it has on a mesh."""
    return tuple(
        each.sharding if request is None and isinstance(each.sharding, NamedSharding) else request
        for each, request in zip(signatures, requests, strict=True)
    )


LowerWith: TypeAlias = Callable[
    [Sequence[Sharding | None], Sequence[Sharding | None]], LoweredProgram
]
"""Lowers a traced program with these shardings of its arguments and results."""


@dataclass(frozen=True, slots=True)
class UnplannedCall:
    """A call for which shardings are chosen: the structure and signatures of its arguments, its
    static arguments, the requested shardings of arguments and results, and the donated leaves."""

    structure: tree.PyTreeDef
    static: Hashable
    signatures: Sequence[ArraySignature]
    requested: Sequence[Sharding | None]
    results: Sequence[Sharding | None]
    donated: Sequence[int]


@final
class ChosenCalls:
    """The chosen shardings of the calls of one function, by all else that identifies a call."""

    def __init__(self) -> None:
        self._known: dict[Hashable, list[ChosenShardings]] = {}

    def choose(
        self, request: DeferredSharding, call: UnplannedCall, lower_with: LowerWith
    ) -> ChosenShardings:
        """Return the shardings of a call: known ones that agree with those stated, or new ones."""
        abstracts = tuple(each.abstract for each in call.signatures)
        key = call.structure, abstracts, call.static, trace_context()
        known = self._known.get(key, [])
        stated = stated_shardings(call.signatures, call.requested)
        ranks = [each.type.rank for each in abstracts]
        for chosen in known:
            if chosen.agrees_with(stated, ranks):
                return chosen
        lowered = lower_with([None] * len(stated), call.results)
        chosen = request.choose(_unsharded_program(lowered, stated, call))
        if len(self._known) >= MAX_CACHED_PROGRAMS:
            self._known.clear()
        self._known.setdefault(key, []).append(chosen)
        return chosen

    def clear(self) -> None:
        """Remove all chosen shardings."""
        self._known.clear()


def _unsharded_program(
    lowered: LoweredProgram, stated: tuple[Sharding | None, ...], call: UnplannedCall
) -> UnshardedProgram:
    """Return the program for which shardings are chosen, lowered without those of arguments."""
    function = lowered.module.main
    types = [value.type for value in function.body.returns]
    return UnshardedProgram(
        lowered.module,
        mesh_of_requests((*stated, *call.results)) or current_mesh(),
        stated,
        str(default_pipeline(lowered)),
        reusable_parameters(call.donated, function, types),
    )


def lower_as_chosen(
    chosen: ChosenShardings,
    homes: Sequence[Sharding | None],
    results: Sequence[Sharding | None],
    lower_with: LowerWith,
) -> LoweredProgram:
    """Return the program whose arguments have the shardings `homes`, lowered with the chosen
    shardings of other values; the requested ones of `results` precede those."""
    kept = [own or planned for own, planned in zip(results, chosen.results, strict=True)]
    plan = lower_with(homes, kept)
    if chosen.constrain is None:
        return plan
    return replace(plan, module=chosen.constrain(plan.module))
