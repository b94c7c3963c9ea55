"""Evaluation of shardings: partition the program, and simulate it on the machine.

The evaluation runs the passes that the compiled program runs. Its collectives, bytes and peak are
therefore those of the compiled program, and propagation from the same shardings costs the same.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from shardir.cost.communication import Collective, list_collectives, sum_collectives
from shardir.errors import PartitionError
from shardir.ir.builder import substitute
from shardir.ir.mesh import Mesh
from shardir.ir.module import Function, Module, Value
from shardir.ir.sharding import Axis, Sharding
from shardir.passes.pipeline import Pipeline
from shardir.passes.planning.programs.assignment import ArgumentAxes, DimAxes
from shardir.passes.rematerialization.remat import BudgetError
from shardir.passes.simulation import MachineModel, simulate
from shardir.passes.simulation.memory_use import memory_use
from shardir.passes.simulation.simulate import FUSION_PIPELINE
from shardir.passes.simulation.utilization import executed_flops

CompilationError = PartitionError | BudgetError
"""Why a program cannot be compiled with some shardings."""
Key = tuple[float, ...]
"""The order of evaluations: excess memory, then cost, then bytes sent and the peak."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The cost of a program with shardings of its arguments, on each device.

    `seconds` is the time of a step, `None` without a machine; `flops` are those of matrix products
    and convolutions.
    """

    arguments: ArgumentAxes
    seconds: float | None
    flops: int
    bytes_sent: int
    collective_count: int
    peak: int
    module: Module = field(repr=False, compare=False)

    @property
    def collectives(self) -> list[Collective]:
        """The collectives of the partitioned program."""
        return list_collectives(self.module)

    def key(self, memory_limit: int | None) -> Key:
        """Return a key that is smaller for better evaluations."""
        excess = 0 if memory_limit is None else max(0, self.peak - memory_limit)
        if self.seconds is not None:
            return (excess, self.seconds, self.bytes_sent, self.peak)
        return (excess, self.flops, self.bytes_sent, self.collective_count, self.peak)


class Evaluator(ABC):
    """Evaluates shardings of the arguments of a program, each of them once."""

    def __init__(self) -> None:
        self._known: dict[ArgumentAxes, Evaluation | CompilationError] = {}

    @property
    def count(self) -> int:
        """The number of evaluated shardings."""
        return len(self._known)

    @property
    def evaluations(self) -> list[Evaluation]:
        """The evaluations of all shardings with which the program can be compiled."""
        return [found for found in self._known.values() if isinstance(found, Evaluation)]

    @property
    def failure(self) -> tuple[ArgumentAxes, CompilationError]:
        """The shardings that failed with the smallest possible budget, or the last ones if no
        budget made them fail, and the error."""
        failed = [(key, each) for key, each in self._known.items() if isinstance(each, Exception)]
        exceeding = [(key, each) for key, each in failed if isinstance(each, BudgetError)]
        return min(exceeding, key=lambda each: each[1].possible) if exceeding else failed[-1]

    def evaluate(self, arguments: ArgumentAxes) -> Evaluation | None:
        """Return the evaluation, or `None` if the program cannot be partitioned so, or does not fit
        into the budget of a pass."""
        try:
            return self.require(arguments)
        except (PartitionError, BudgetError):
            return None

    def require(self, arguments: ArgumentAxes) -> Evaluation:
        """Return the evaluation; raise the error where `evaluate` returns `None`."""
        if arguments not in self._known:
            try:
                self._known[arguments] = self._evaluate(arguments)
            except (PartitionError, BudgetError) as error:
                # The frames of a traceback would keep the program of each candidate in memory.
                self._known[arguments] = error.with_traceback(None)
        found = self._known[arguments]
        if isinstance(found, Evaluation):
            return found
        raise found.with_traceback(None)

    @abstractmethod
    def _evaluate(self, arguments: ArgumentAxes) -> Evaluation: ...


class ProgramEvaluator(Evaluator):
    """Evaluates shardings of the arguments of one program by partitioning it.

    `state_pairs` are the results that have the sharding of an argument (`state_pairs.py`), and
    `anchors` the values whose shardings follow those of the arguments (`anchors.py`).
    """

    def __init__(
        self,
        module: Module,
        mesh: Mesh,
        machine: MachineModel | None,
        pipeline: Pipeline,
        state_pairs: Mapping[int, int],
        donated: Sequence[int] = (),
        fusion: str = FUSION_PIPELINE,
        anchors: Sequence[Value] = (),
    ) -> None:
        super().__init__()
        self.module, self.mesh, self.machine = module, mesh, machine
        self.pipeline, self.state_pairs = pipeline, state_pairs
        self.donated, self.fusion, self.anchors = donated, fusion, anchors

    def _evaluate(self, arguments: ArgumentAxes) -> Evaluation:
        annotated = annotate_arguments(
            self.module, self.mesh, arguments, self.state_pairs, self.anchors
        )
        module = self.pipeline(annotated)
        kernels = Pipeline.parse(self.fusion)(module) if self.fusion else module
        seconds = None
        if self.machine is not None:
            simulation = simulate(kernels, self.machine, fusion="", donated=self.donated)
            seconds, peak = simulation.step_seconds, simulation.memory.peak
        else:
            peak = memory_use(kernels, self.donated).peak
        found = list_collectives(module)
        total = sum_collectives(found)
        return Evaluation(
            arguments,
            seconds,
            sum(executed_flops(module).values()),
            total.sent,
            total.executions,
            peak,
            module,
        )


def annotate_arguments(
    module: Module,
    mesh: Mesh,
    arguments: ArgumentAxes,
    state_pairs: Mapping[int, int],
    anchors: Sequence[Value] = (),
) -> Module:
    """Return a module with shardings of its arguments and anchors, and of the results paired with
    arguments.

    Values whose axes are `None`, such as captured arrays, keep their shardings.
    """
    function = module.main
    values = (*function.body.params, *anchors)
    shardings = [
        value.sharding if axes is None else sharding_of(axes, mesh)
        for value, axes in zip(values, arguments, strict=True)
    ]
    new = {
        value: Value(value.type, value.name, sharding)
        for value, sharding in zip(values, shardings, strict=True)
    }
    results = tuple(
        shardings[state_pairs[index]] if index in state_pairs else sharding
        for index, sharding in enumerate(function.result_shardings)
    )
    annotated = Function(function.name, substitute(function.body, new), results)
    functions = (annotated, *module.functions[1:])
    return replace(module, meshes=module.meshes or (mesh,), functions=functions)


def annotate_values(module: Module, constraints: Mapping[str, DimAxes]) -> Module:
    """Return a module with shardings of the values of its first function that have these names."""
    function = module.main
    new = {
        value: replace(value, sharding=sharding_of(constraints[value.name], module.meshes[0]))
        for op in function.body.ops
        for value in op.results
        if value.name in constraints
    }
    annotated = replace(function, body=substitute(function.body, new))
    return replace(module, functions=(annotated, *module.functions[1:]))


def sharding_of(axes: DimAxes, mesh: Mesh) -> Sharding:
    """Return the sharding along whole mesh axes."""
    return Sharding.of(mesh.name, [tuple(Axis.full(name, mesh) for name in dim) for dim in axes])
