"""Remedies for a program that does not fit into the memory of a device.

Each candidate changes the lowered program, which is partitioned and simulated again: the predicted
time and peak are those of the user's program with this change. Candidates are the donation of
arguments, the recomputation of values (the pass `remat`), and the sharding of state along one more
mesh axis: optimizer state alone (ZeRO stage 1), parameters, both (ZeRO stage 3, FSDP), or one large
argument. ZeRO: Rajbhandari et al., SC 2020; FSDP: Zhao et al., VLDB 2023.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice

from shardir.errors import ShardirError
from shardir.frontend.dispatch.programs.lowering import LoweredProgram
from shardir.frontend.pytree import tree
from shardir.frontend.shardings.sharding import NamedSharding
from shardir.ir.builder import substitute
from shardir.ir.mesh import Mesh
from shardir.ir.module import Module, Value
from shardir.ir.sharding import Axis, Sharding, count_positions
from shardir.passes.planning.programs.state_pairs import find_state_pairs
from shardir.passes.rematerialization.remat import Remat
from shardir.passes.simulation import Simulation
from shardir.passes.simulation.argument_kinds import MemoryKind, kinds_of_arguments
from shardir.passes.simulation.simulation import Remedy, rank_remedies

MAX_SINGLE_CHANGES = 8
"""The maximum number of candidates with one change: a donation, a sharding, or recomputation."""
MAX_COMBINED_CHANGES = 2
"""The maximum number of candidates that donate arguments and change something else, which are
evaluated if no other fits."""

Simulate = Callable[[Module, Sequence[int], str], Simulation]
"""Partitions and simulates a traced program with donated leaves of its arguments, and with passes
after the other ones."""


@dataclass(frozen=True, slots=True)
class _Change:
    """A change of a program: new shardings of parameters, donated positional arguments, and
    recomputation of values."""

    shardings: tuple[tuple[int, Sharding], ...] = ()
    donated: tuple[int, ...] = ()
    recomputes: bool = False


@dataclass(frozen=True)
class RemedySearch:
    """The search of remedies for one lowered program.

    `partitioned` is the program of each device before any change. `labels` are the names of the
    leaves of the arguments, `in_tree` is their structure, and `static` are the indices of static
    arguments, which are not in it. `donated` are the leaves that are donated already.
    `memory_bytes` is the memory into which the program must fit.
    """

    plan: LoweredProgram
    partitioned: Module
    labels: Sequence[str]
    in_tree: tree.PyTreeDef
    static: frozenset[int]
    donated: Sequence[int]
    memory_bytes: int
    simulate: Simulate

    def find(self, before: Simulation) -> tuple[tuple[Remedy, ...], int]:
        """Return the remedies, best first, and the number of simulated changes."""
        donation = self._donation()
        single = [] if donation is None else [donation]
        arguments = sum(value.type.nbytes for value in self.partitioned.main.body.params)
        if arguments < self.memory_bytes:
            single.append(_Change(recomputes=True))
        single += islice(self._further_shardings(), MAX_SINGLE_CHANGES - len(single))
        found = {change: self._evaluate(change) for change in single}
        if donation is not None and not any(each and each.fits for each in found.values()):
            useful = [
                (each, change)
                for change, each in found.items()
                if each is not None and each.peak < before.memory.peak and change != donation
            ]
            useful.sort(key=lambda pair: pair[0].peak)
            for without, change in useful[:MAX_COMBINED_CHANGES]:
                both = replace(change, donated=donation.donated)
                remedy = self._evaluate(both)
                # Donation that does not reduce the peak further is no part of a remedy.
                found[both] = remedy if remedy and remedy.peak < without.peak else None
        remedies = [each for each in found.values() if each is not None]
        return rank_remedies(remedies, before.memory.peak), len(found)

    def _evaluate(self, change: _Change) -> Remedy | None:
        """Return the remedy of a change, or `None` if the changed program cannot be partitioned, or
        simulated on the machine."""
        leaves = [leaf for number in change.donated for leaf in self._positional[number]]
        module = self._with_shardings(dict(change.shardings))
        try:
            donated = sorted({*self.donated, *leaves})
            passes = self._remat(bool(donated)) if change.recomputes else ""
            simulation = self.simulate(module, donated, passes)
        except ShardirError:
            return None
        return Remedy(
            tuple(self._texts(change)),
            simulation.breakdown.duration,
            simulation.memory.peak,
            bool(simulation.fits),
        )

    def _remat(self, donated: bool) -> str:
        """Return the pass that computes values again, as text."""
        return str(Remat(str(self.memory_bytes), donated=donated))

    @cached_property
    def _positional(self) -> dict[int, list[int]]:
        """The leaves of each positional argument, by its number in a call."""
        args, _ = tree.unflatten(self.in_tree, range(self.in_tree.num_leaves))
        total = len(args) + len(self.static)
        numbers = [number for number in range(total) if number not in self.static]
        return {number: tree.leaves(arg) for number, arg in zip(numbers, args, strict=False)}

    def _donation(self) -> _Change | None:
        """Return the donation of all positional arguments of which each array has a result of its
        type, if some are not donated yet."""
        function = self.partitioned.main
        left = [value.type for value in function.body.returns]
        params = function.body.params
        for leaf in self.donated:
            if params[leaf].type in left:
                left.remove(params[leaf].type)
        chosen = []
        for number, leaves in self._positional.items():
            rest = list(left)
            for leaf in leaves:
                if leaf in self.donated or params[leaf].type not in rest:
                    break
                rest.remove(params[leaf].type)
            else:
                if leaves:
                    chosen.append(number)
                    left = rest
        return _Change(donated=tuple(chosen)) if chosen else None

    def _further_shardings(self) -> Iterator[_Change]:
        """Yield changes of shardings, those that remove most bytes of arguments first."""
        if not self.plan.module.meshes or any(
            isinstance(each, NamedSharding) and each.has_explicit_axes
            for each in self.plan.user_shardings
        ):
            return  # Explicit axes are part of the types with which the program was traced.
        kinds = kinds_of_arguments(self.partitioned.main)
        params = self.partitioned.main.body.params[: self.in_tree.num_leaves]
        states = {
            kind: [number for number, value in enumerate(params) if kinds.get(value) is kind]
            for kind in (MemoryKind.PARAMETERS, MemoryKind.OPTIMIZER_STATE)
        }
        groups = [*states.values(), [number for each in states.values() for number in each]]
        groups += [[number] for number in range(len(params))]
        saved: dict[_Change, float] = {}
        mesh = self.plan.module.meshes[0]
        for axis, size in mesh.axes:
            for group in groups:
                new = {number: self._shard_further(number, axis, mesh) for number in group}
                change = _Change(tuple((n, each) for n, each in new.items() if each is not None))
                if size > 1 and change.shardings:
                    nbytes = sum(params[number].type.nbytes for number, _ in change.shardings)
                    saved[change] = nbytes * (1 - 1 / size)
        yield from sorted(saved, key=lambda change: -saved[change])

    def _dims(self, number: int) -> tuple[tuple[Axis, ...], ...]:
        """Return the axes of each dimension of a parameter of the partitioned program."""
        spmd = self.partitioned.main.spmd
        sharding = None if spmd is None else spmd.params[number].sharding
        rank = self.plan.module.main.body.params[number].type.rank
        return ((),) * rank if sharding is None else tuple(sharding.axes)

    def _shard_further(self, number: int, axis: str, mesh: Mesh) -> Sharding | None:
        """Return the sharding of a parameter along one more axis, in an unsharded dimension if
        possible, and in the largest one; `None` if the axis shards it, or divides no dimension."""
        dims = self._dims(number)
        if any(each.name == axis for dim in dims for each in dim):
            return None
        shape = self.plan.module.main.body.params[number].type.shape
        best: tuple[bool, int, int] | None = None
        for dim, (axes, size) in enumerate(zip(dims, shape, strict=True)):
            shards = count_positions(axes)
            if size and size % (shards * mesh.sizes[axis]) == 0:
                best = max(best or (False, 0, 0), (not axes, size // shards, -dim))
        if best is None:
            return None
        chosen = -best[2]
        added = (*dims[:chosen], (*dims[chosen], Axis.full(axis, mesh)), *dims[chosen + 1 :])
        sharding = Sharding.of(mesh.name, added)
        return None if self._spec(number, sharding) is None else sharding

    def _spec(self, number: int, sharding: Sharding) -> str | None:
        """Return a sharding as a spec on the user's mesh, or `None` if no spec states it."""
        rank = self.plan.module.main.body.params[number].type.rank
        found = self.plan.to_user_sharding(sharding, rank)
        meshes = [own.mesh for own in self.plan.user_shardings if isinstance(own, NamedSharding)]
        if not isinstance(found, NamedSharding) or found.mesh not in meshes:
            return None
        return repr(found.spec)

    @cached_property
    def _next_values(self) -> Mapping[int, list[int]]:
        """The results of stated sharding that are the next values of each parameter, and have its
        sharding."""
        function = self.plan.module.main
        free = replace(function, result_shardings=(None,) * len(function.result_shardings))
        results: dict[int, list[int]] = {}
        for result, number in find_state_pairs(free, self.in_tree.num_leaves).items():
            stated = function.result_shardings[result]
            if stated is not None and tuple(stated.axes) == self._dims(number):
                results.setdefault(number, []).append(result)
        return results

    def _with_shardings(self, shardings: Mapping[int, Sharding]) -> Module:
        """Return the traced program with other shardings of parameters, and of the results that
        are stated to be sharded like them."""
        if not shardings:
            return self.plan.module
        function = self.plan.module.main
        params = function.body.params
        new = {
            params[number]: Value(params[number].type, params[number].name, sharding)
            for number, sharding in shardings.items()
        }
        results = list(function.result_shardings)
        for number, sharding in shardings.items():
            for result in self._next_values.get(number, ()):
                results[result] = sharding
        changed = replace(
            function, body=substitute(function.body, new), result_shardings=tuple(results)
        )
        functions = (changed, *self.plan.module.functions[1:])
        return replace(self.plan.module, functions=functions)

    def _texts(self, change: _Change) -> Iterator[str]:
        """Yield the changes in the user's code."""
        if change.donated:
            before = [
                number
                for number, leaves in self._positional.items()
                if leaves and set(leaves) <= set(self.donated)
            ]
            yield f"donate_argnums={tuple(sorted({*before, *change.donated}))}"
        if change.recomputes:
            passes = self.plan.passes or "default"
            yield f'passes="{passes},{self._remat(bool(self.donated or change.donated))}"'
        for number, sharding in change.shardings:
            results = self._next_values.get(number, ())
            names = " and ".join([self.labels[number], *(f"result {each}" for each in results)])
            yield f"{names}: {self._spec(number, sharding)}"
