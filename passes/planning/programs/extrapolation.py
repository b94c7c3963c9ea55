"""Evaluation of a program of many layers from two programs of few layers.

Each further layer adds the same time and bytes. The cost with all layers follows from the costs
with few layers and with one more. While an operation runs, each further layer adds the same memory,
too, but not the same at all operations: the peak may be at different ones in the three programs.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import neg
from typing import Self, TypeVar

from shardir.ir.mesh import Mesh
from shardir.ir.module import Module, Value
from shardir.passes.planning.programs.assignment import ArgumentAxes, DimAxes
from shardir.passes.planning.programs.evaluation import (
    Cost,
    Evaluation,
    Evaluator,
    ProgramEvaluator,
)
from shardir.passes.planning.programs.fold_layers import (
    FoldedProgram,
    LayerFolder,
    layer_of,
    rename_layer,
)
from shardir.passes.simulation import MachineModel

Number = TypeVar("Number", int, float)

MIN_OPERATIONS = 1500
"""The number of operations from which on a program is folded."""
MIN_LAYERS = 6
"""The number of layers from which on a program is folded."""


@dataclass(frozen=True)
class FoldedPrograms:
    """Two folded programs of one program of `layers` layers: `large` has `kept` of them, and
    `small` one less.

    `representatives` has for each argument of the program the index of the argument of `large` that
    stands for it: layer n is represented by layer n modulo `kept`.
    """

    small: FoldedProgram
    large: FoldedProgram
    layers: int
    kept: int
    representatives: tuple[int, ...]

    def expand(self, arguments: ArgumentAxes) -> ArgumentAxes:
        """Return the axes of all arguments of the program, from those of the folded program
        `large`."""
        return tuple(arguments[index] for index in self.representatives)

    def shrink(self, axes: Sequence[DimAxes | None]) -> ArgumentAxes:
        """Return the axes of the arguments of `large`, from those of the program; the first layer
        with axes determines those of the layer that represents it."""
        found: list[DimAxes | None] = [None] * len(self.large.arguments)
        for index, each in zip(self.representatives, axes, strict=True):
            if found[index] is None:
                found[index] = each
        return tuple(found)


def fold_program(module: Module) -> FoldedPrograms | None:
    """Return folded programs of a module, or `None` if it is small or has no repeated layers."""
    if len(module.main.body.ops) < MIN_OPERATIONS:
        return None
    folder = LayerFolder(module)
    if folder.layers < MIN_LAYERS:
        return None
    for kept in (2, 3):
        small, large = folder.fold(kept - 1), folder.fold(kept)
        if small is not None and large is not None:
            found = _representatives(module, large, kept)
            if found is not None:
                return FoldedPrograms(small, large, folder.layers, kept, found)
    return None


def _representatives(module: Module, large: FoldedProgram, kept: int) -> tuple[int, ...] | None:
    params = module.main.body.params
    index_of = {params[number].name: i for i, number in enumerate(large.arguments)}
    found = []
    for value in params:
        layer = layer_of(value.name)
        name = value.name if layer is None else rename_layer(value.name, layer % kept)
        index = index_of.get(value.name, index_of.get(name))
        if index is None or params[large.arguments[index]].type != value.type:
            return None
        found.append(index)
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _PartitionedCosts:
    """Costs without the work of fused operations: two of the smaller program, and the extrapolated
    one."""

    in_small: tuple[Cost, Cost]
    extended: Cost


class ExtrapolatingEvaluator(Evaluator):
    """Evaluates shardings of the arguments of the larger one of two folded programs.

    If the smaller program costs more than with other shardings, both as it is and with its layers
    repeated, these costs predict that of the whole program.
    """

    def __init__(
        self, small: ProgramEvaluator, large: ProgramEvaluator, programs: FoldedPrograms
    ) -> None:
        super().__init__()
        self.small, self.large, self.programs = small, large, programs
        numbers = {number: i for i, number in enumerate(programs.large.arguments)}
        self._in_large = [numbers[number] for number in programs.small.arguments]
        bodies = (each.module.main.body for each in (small, large))
        in_small, in_large = ({value.name for value in body.values()} for body in bodies)
        self._names = in_small & in_large
        """The names that both programs have. Those that passes make for further values may have
        different roles in the two partitioned programs."""
        self._costs: dict[ArgumentAxes, _PartitionedCosts] = {}

    def on_mesh(self, mesh: Mesh, machine: MachineModel | None) -> Self:
        """Return the evaluator of the same programs on another mesh."""
        return type(self)(
            self.small.on_mesh(mesh, machine), self.large.on_mesh(mesh, machine), self.programs
        )

    def steps(
        self, arguments: ArgumentAxes, worst: Evaluation | None = None
    ) -> Iterator[Cost | Evaluation]:
        """Yield the cost that the smaller program predicts, the extrapolated one without the work
        of fused operations, and then the evaluation."""
        in_small = tuple(arguments[i] for i in self._in_large)
        small = self.small.partition(in_small)
        costs = self._costs_in_small(small)
        known = None if worst is None else self._costs.get(worst.arguments)
        if known is not None:
            yield min(
                tuple(map(sum, zip(known.extended, own, map(neg, other), strict=True)))
                for own, other in zip(costs, known.in_small, strict=True)
            )
        large = self.large.partition(arguments)
        extended = tuple(map(self._extend, self.large.least_cost(large), costs[0]))
        self._costs[arguments] = _PartitionedCosts(costs, extended)
        yield extended
        yield self._extend_evaluation(
            self.large.evaluate_partitioned(arguments, large),
            self.small.evaluate_partitioned(in_small, small),
        )

    def _costs_in_small(self, module: Module) -> tuple[Cost, Cost]:
        """Return the cost of the partitioned smaller program, and the cost if its layers are
        repeated as often as in the whole program."""
        cost = self.small.least_cost(module)
        body = module.main.body
        ops = tuple(op for op in body.ops if any(map(self._is_repeated, op.results)))
        layers = replace(module.main, body=replace(body, ops=ops))
        part = self.small.least_cost(replace(module, functions=(layers, *module.functions[1:])))
        kept = self.programs.kept - 1
        times = (self.programs.layers - kept) / kept
        return cost, tuple(all_ops + times * each for all_ops, each in zip(cost, part, strict=True))

    def _is_repeated(self, value: Value) -> bool:
        """Return whether a value of the partitioned smaller program belongs to a layer."""
        return _is_derived(value.name, self.programs.small.repeated)

    def _extend_evaluation(self, large: Evaluation, small: Evaluation) -> Evaluation:
        seconds = None
        if large.seconds is not None and small.seconds is not None:
            seconds = self._extend(large.seconds, small.seconds)
        return replace(
            large,
            seconds=seconds,
            flops=self._extend(large.flops, small.flops),
            bytes_sent=self._extend(large.bytes_sent, small.bytes_sent),
            collective_count=self._extend(large.collective_count, small.collective_count),
            peak=self._extend_peak(large, small),
            alive={},
        )

    def _extend_peak(self, large: Evaluation, small: Evaluation) -> int:
        """Return the peak with all layers: the most memory while an operation of the larger
        program runs. An operation that both programs have shows how many bytes a layer adds there.
        One that only the larger program has stands for the last repetition of its run, at whose
        end each layer has added as much as at the next common operation."""
        added = _last(large.alive) - _last(small.alive)
        peak = large.peak
        for name, nbytes in reversed(large.alive.items()):
            if name in small.alive and _is_derived(name, self._names):
                added = nbytes - small.alive[name]
            peak = max(peak, self._extend(nbytes, nbytes - added))
        return peak

    def _extend(self, large: Number, small: Number) -> Number:
        """Return a cost with all layers."""
        more = self.programs.layers - self.programs.kept
        return large + more * (large - small)


def _is_derived(name: str, names: Collection[str]) -> bool:
    """Return whether a value has one of the names, or a pass derived it from such a value, and
    added a suffix to its name."""
    while name and name not in names:
        name = name.rpartition(".")[0]
    return bool(name)


def _last(alive: dict[str, int]) -> int:
    """Return the bytes while the last operation runs."""
    return next(reversed(alive.values()), 0)
