"""Remedies for a program that does not fit into the memory of a device.

Each candidate changes the lowered program, which is partitioned and simulated again: the predicted
time and peak are those of the user's program with this change. Candidates are

- the donation of arguments,
- the recomputation of values under a budget (the pass `remat`) or by policy and layer
  (`remat-layers`),
- the accumulation of gradients over microbatches (`split-batch`, `accumulate-microbatches`),
- the sharding of state along one more mesh axis: optimizer state alone (ZeRO stage 1), parameters,
  both (ZeRO stage 3, FSDP), or one large argument,
- optimizer state in the memory of the host (ZeRO-Offload), which is simulated only.

ZeRO: Rajbhandari et al., SC 2020; FSDP: Zhao et al., VLDB 2023; ZeRO-Offload: Ren et al., ATC 2021.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice

from shardir.display.byte_sizes import show_bytes
from shardir.errors import MachineError, ShardirError, count_noun
from shardir.frontend.dispatch.programs.lowering import LoweredProgram
from shardir.frontend.pytree import tree
from shardir.frontend.shardings.sharding import NamedSharding
from shardir.ir.builder import substitute
from shardir.ir.mesh import Mesh
from shardir.ir.module import Function, Module, Value
from shardir.ir.sharding import Axis, Sharding, count_positions
from shardir.passes.microbatching.accumulate_microbatches import AccumulateMicrobatches
from shardir.passes.microbatching.split_batch import SplitBatch
from shardir.passes.planning.programs.state_pairs import find_state_pairs
from shardir.passes.rematerialization.remat import Remat
from shardir.passes.rematerialization.remat_layers import RematLayers, count_layers
from shardir.passes.simulation import Simulation
from shardir.passes.simulation.argument_kinds import MemoryKind, kinds_of_arguments
from shardir.passes.simulation.simulation import Remedy, rank_remedies

MAX_SHARDING_CHANGES = 6
"""The maximum number of candidates with other shardings."""
MICROBATCH_COUNTS = (2, 4, 8, 16)
"""The numbers of microbatches; larger ones are candidates if the program fits with no smaller
one."""
MAX_COMBINED_CHANGES = 2
"""The maximum number of candidates that change something else and donate arguments, or transfer
optimizer state to the host; they are evaluated if no single change fits."""


@dataclass(frozen=True, slots=True)
class ChangedProgram:
    """A program to partition and simulate: a traced module, the leaves of its arguments that are
    donated, passes before and after the other ones, and the states in the memory of the host, with
    the numbers of their next values among the results."""

    module: Module
    donated: Sequence[int]
    before: str
    after: str
    offloaded: Mapping[int, int]


Simulate = Callable[[ChangedProgram], Simulation]


@dataclass(frozen=True, slots=True)
class _Change:
    """A change of a program: new shardings of parameters, donated positional arguments, passes
    before and after the other ones, a budget for the recomputation of values, and states in the
    memory of the host."""

    shardings: tuple[tuple[int, Sharding], ...] = ()
    donated: tuple[int, ...] = ()
    before: str = ""
    after: str = ""
    has_budget: bool = False
    offloaded: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class FoundRemedies:
    """The remedies, best first, the number of simulated changes, and notes on changes that the
    machine description does not suffice to simulate."""

    remedies: tuple[Remedy, ...]
    change_count: int
    notes: tuple[str, ...]


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

    def find(self, before: Simulation) -> FoundRemedies:
        """Return the remedies of a program whose simulation is `before`."""
        found: dict[_Change, Remedy] = {}
        useless: set[_Change] = set()
        notes: dict[str, None] = {}

        def evaluate(change: _Change) -> Remedy | None:
            """Simulate a change; return `None` if it is impossible for this program or machine."""
            try:
                found[change] = self._evaluate(change)
            except MachineError as error:
                notes[f"a change was not simulated ({self._title(change)}): {error}"] = None
            except ShardirError:
                pass  # The changed program cannot be partitioned, or the pass cannot change it.
            return found.get(change)

        donation = self._donation()
        for change in self._single_changes(donation):
            evaluate(change)
        for count in MICROBATCH_COUNTS:
            change = _Change(before=str(SplitBatch(count)), after=str(AccumulateMicrobatches()))
            remedy = evaluate(change)
            if remedy is None or remedy.fits:
                break
        if not any(each.fits for each in found.values()):
            least = sorted(found, key=lambda change: found[change].peak)
            pair = (donation, self._offload())
            partners = [each for each in pair if each is not None and each in found]
            others = [change for change in least if change not in partners]
            for partner in partners:
                for change in others[:MAX_COMBINED_CHANGES]:
                    # Only the partners donate arguments or use the memory of the host.
                    both = replace(change, donated=partner.donated, offloaded=partner.offloaded)
                    combined = evaluate(both)
                    if combined is not None and combined.peak >= found[change].peak:
                        # A change that does not reduce the peak further is no part of a remedy.
                        useless.add(both)
        useful_remedies = [found[change] for change in found if change not in useless]
        remedies = rank_remedies(useful_remedies, before.memory.peak)
        return FoundRemedies(remedies, len(found), tuple(notes))

    def _single_changes(self, donation: _Change | None) -> Iterator[_Change]:
        """Yield the changes of one kind each, other than microbatches."""
        if donation is not None:
            yield donation
        arguments = sum(value.type.nbytes for value in self.partitioned.main.body.params)
        if arguments < self.memory_bytes:
            yield _Change(has_budget=True)
        if (layers := count_layers(self.partitioned)) > 0:
            yield _Change(after=str(RematLayers("dots")))
            for count in sorted({0, (layers + 1) // 2} - {layers}):
                yield _Change(after=str(RematLayers("nothing", count)))
        if (offload := self._offload()) is not None:
            yield offload
        yield from islice(self._further_shardings(), MAX_SHARDING_CHANGES)

    def _evaluate(self, change: _Change) -> Remedy:
        """Return the remedy of a change; raise `ShardirError` if the changed program cannot be
        partitioned, or simulated on the machine."""
        leaves = [leaf for number in change.donated for leaf in self._positional[number]]
        donated = sorted({*self.donated, *leaves})
        simulation = self.simulate(
            ChangedProgram(
                self._with_shardings(dict(change.shardings)),
                donated,
                change.before,
                self._remat(bool(donated)) if change.has_budget else change.after,
                dict(change.offloaded),
            )
        )
        return Remedy(
            tuple(self._texts(change)),
            simulation.breakdown.duration,
            simulation.memory.peak,
            bool(simulation.fits),
        )

    def _title(self, change: _Change) -> str:
        return ", ".join(self._texts(change))

    def _remat(self, donated: bool) -> str:
        """Return the pass that computes values again, as text."""
        return str(Remat(str(self.memory_bytes), donated=donated))

    def _offload(self) -> _Change | None:
        """Return the transfer of the optimizer state to the host, if there is some."""
        states = tuple(self._offloadable.items())
        return _Change(offloaded=states) if states else None

    @cached_property
    def _offloadable(self) -> dict[int, int]:
        """The optimizer state whose next values are results, by the number of its parameter."""
        kinds = kinds_of_arguments(self.partitioned.main)
        params = self.partitioned.main.body.params
        pairs = find_state_pairs(self._without_result_shardings, self.in_tree.num_leaves)
        return {
            number: result
            for result, number in sorted(pairs.items(), key=lambda pair: pair[1])
            if kinds.get(params[number]) is MemoryKind.OPTIMIZER_STATE
        }

    @cached_property
    def _without_result_shardings(self) -> Function:
        function = self.plan.module.main
        return replace(function, result_shardings=(None,) * len(function.result_shardings))

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
            each.has_explicit_axes for each in self.plan.user_shardings
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
        function, free = self.plan.module.main, self._without_result_shardings
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
        after = change.after
        if change.has_budget:
            after = self._remat(bool(self.donated or change.donated))
        if after:  # Passes before the others need one after them.
            steps = (change.before, self.plan.passes or "default", after)
            yield f'passes="{",".join(filter(None, steps))}"'
        if change.offloaded:
            params = self.partitioned.main.body.params
            nbytes = sum(params[number].type.nbytes for number, _ in change.offloaded)
            count = count_noun(len(change.offloaded), "argument")
            yield f"optimizer state in host memory: {show_bytes(nbytes)} of {count}"
        for number, sharding in change.shardings:
            results = self._next_values.get(number, ())
            names = " and ".join([self.labels[number], *(f"result {each}" for each in results)])
            yield f"{names}: {self._spec(number, sharding)}"
