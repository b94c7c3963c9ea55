"""Evaluation of shardings: partition the program, and simulate it on the machine.

The evaluation runs the passes that the compiled program runs. Its collectives, bytes and peak are
therefore those of the compiled program, and propagation from the same shardings costs the same.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from shardir.cost.communication import Collective, list_collectives, sum_collectives
from shardir.errors import PartitionError
from shardir.ir.builder import substitute
from shardir.ir.mesh import Mesh
from shardir.ir.module import Function, Module, Value
from shardir.ir.sharding import Axis, Sharding
from shardir.passes.pipeline import Pipeline
from shardir.passes.planning.programs.assignment import ArgumentAxes, DimAxes
from shardir.passes.rematerialization.remat import BudgetError
from shardir.passes.simulation.host_calls import CallCosts
from shardir.passes.simulation.machine_model import MachineModel
from shardir.passes.simulation.memory_use import memory_use
from shardir.passes.simulation.simulate import FUSION_PIPELINE, least_seconds, simulate
from shardir.passes.simulation.utilization import executed_flops

CompilationError = PartitionError | BudgetError
"""Why a program cannot be compiled with some shardings."""
Cost = tuple[float, ...]
"""The cost of a plan: the seconds of a step, or without a machine the flops, the bytes sent and the
number of collectives, in this order."""
Key = tuple[float, ...]
"""The order of evaluations: excess memory, then cost, then bytes sent and the peak."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The cost of a program with shardings of its arguments, on each device.

    `seconds` is the time of a step, `None` without a machine; `flops` are those of matrix products
    and convolutions. `alive` are the bytes while the operation runs that defines a value, by the
    name of the value; `peak` is the most. `called` are the collectives of functions that the
    program calls, such as pipelines.
    """

    arguments: ArgumentAxes
    seconds: float | None
    flops: int
    bytes_sent: int
    collective_count: int
    peak: int
    alive: dict[str, int] = field(repr=False, compare=False)
    module: Module = field(repr=False, compare=False)
    called: tuple[Collective, ...] = field(default=(), repr=False, compare=False)

    @property
    def collectives(self) -> list[Collective]:
        """The collectives of the partitioned program."""
        return [*list_collectives(self.module), *self.called]

    @property
    def cost(self) -> Cost:
        """The cost, without the memory."""
        if self.seconds is not None:
            return (self.seconds,)
        return (self.flops, self.bytes_sent, self.collective_count)

    def excess(self, memory_limit: int | None) -> int:
        """Return the bytes by which the peak exceeds a limit."""
        return 0 if memory_limit is None else max(0, self.peak - memory_limit)

    def key(self, memory_limit: int | None) -> Key:
        """Return a key that is smaller for better evaluations."""
        sent = () if self.seconds is None else (self.bytes_sent,)
        return (self.excess(memory_limit), *self.cost, *sent, self.peak)


class Evaluator(ABC):
    """Evaluates shardings of the arguments of a program, each of them once.

    An evaluation ends early if the shardings cost more than those of another evaluation.
    """

    def __init__(self) -> None:
        self._known: dict[ArgumentAxes, Evaluation | CompilationError | Cost] = {}

    @property
    def count(self) -> int:
        """The number of evaluated shardings."""
        return len(self._known)

    def evaluate_all(self) -> list[Evaluation]:
        """Return the evaluations of all shardings so far with which the program can be compiled,
        also of those that ended early."""
        found = [self.evaluate(arguments) for arguments in list(self._known)]
        return [each for each in found if each is not None]

    @property
    def failure(self) -> tuple[ArgumentAxes, CompilationError]:
        """The shardings that failed with the smallest possible budget, or the last ones if no
        budget made them fail, and the error."""
        failed = [(key, each) for key, each in self._known.items() if isinstance(each, Exception)]
        exceeding = [(key, each) for key, each in failed if isinstance(each, BudgetError)]
        return min(exceeding, key=lambda each: each[1].possible) if exceeding else failed[-1]

    def evaluate(
        self, arguments: ArgumentAxes, worst: Evaluation | None = None
    ) -> Evaluation | None:
        """Return the evaluation, or `None` if the program cannot be partitioned so, does not fit
        into the budget of a pass, or costs more than the evaluation `worst`."""
        found = self._known.get(arguments)
        if found is None or (isinstance(found, tuple) and not _exceeds(found, worst)):
            found = self._known[arguments] = self._find(arguments, worst)
        return found if isinstance(found, Evaluation) else None

    def has_failed(self, arguments: ArgumentAxes) -> bool:
        """Return whether the program cannot be compiled with evaluated shardings."""
        return isinstance(self._known[arguments], Exception)

    def require(self, arguments: ArgumentAxes) -> Evaluation:
        """Return the evaluation; raise the error where `evaluate` returns `None`."""
        evaluation = self.evaluate(arguments)
        found = self._known[arguments]
        if isinstance(found, Exception):
            raise found.with_traceback(None)
        assert evaluation is not None
        return evaluation

    def _find(
        self, arguments: ArgumentAxes, worst: Evaluation | None
    ) -> Evaluation | CompilationError | Cost:
        """Return the evaluation, the error, or a cost above that of `worst` that the shardings have
        at least."""
        try:
            for found in self.steps(arguments, worst):
                if isinstance(found, Evaluation) or _exceeds(found, worst):
                    return found
        except (PartitionError, BudgetError) as error:
            # The frames of a traceback would keep the program of each candidate in memory.
            return error.with_traceback(None)
        raise AssertionError("an evaluation is the last step")

    @abstractmethod
    def on_mesh(self, mesh: Mesh, machine: MachineModel | None) -> Self:
        """Return the evaluator of the same program on another mesh."""

    @abstractmethod
    def steps(
        self, arguments: ArgumentAxes, worst: Evaluation | None = None
    ) -> Iterator[Cost | Evaluation]:
        """Yield lower bounds of the cost, and then the evaluation. Bounds may be predicted from the
        difference to an evaluation `worst`."""


def _exceeds(cost: Cost, worst: Evaluation | None) -> bool:
    return worst is not None and cost > worst.cost


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
        anchors: Sequence[Value] = (),
    ) -> None:
        super().__init__()
        self.module, self.mesh, self.machine = module, mesh, machine
        self.pipeline, self.state_pairs = pipeline, state_pairs
        self.donated, self.anchors = donated, anchors

    def steps(
        self, arguments: ArgumentAxes, worst: Evaluation | None = None
    ) -> Iterator[Cost | Evaluation]:
        """Yield the cost without the work of fused operations, and then the evaluation."""
        module = self.partition(arguments)
        yield self.least_cost(module)
        yield self.evaluate_partitioned(arguments, module)

    def on_mesh(self, mesh: Mesh, machine: MachineModel | None) -> Self:
        """Return the evaluator of the same program on another mesh."""
        return type(self)(
            self.module,
            mesh,
            machine,
            self.pipeline,
            self.state_pairs,
            self.donated,
            self.anchors,
        )

    def partition(self, arguments: ArgumentAxes) -> Module:
        """Return the program of each device."""
        return self.pipeline(
            annotate_arguments(self.module, self.mesh, arguments, self.state_pairs, self.anchors)
        )

    def evaluate_partitioned(self, arguments: ArgumentAxes, module: Module) -> Evaluation:
        """Return the evaluation of a partitioned program."""
        return self.evaluate_with_calls(arguments, module, {})

    def evaluate_with_calls(
        self, arguments: ArgumentAxes, module: Module, calls: CallCosts
    ) -> Evaluation:
        """Return the evaluation of a partitioned program, of whose cost only time and memory
        include those of the functions that it calls."""
        kernels = Pipeline.parse(FUSION_PIPELINE)(module)
        seconds = None
        if self.machine is not None:
            simulation = simulate(
                kernels, self.machine, fusion="", donated=self.donated, calls=calls
            )
            seconds, memory = simulation.step_seconds, simulation.memory
        else:
            memory = memory_use(kernels, self.donated, calls=calls)
        alive = {value.name: n for op, n in memory.alive.items() for value in op.results}
        flops, sent, count = _count_work(module)
        return Evaluation(arguments, seconds, flops, sent, count, memory.peak, alive, module)

    def least_cost(self, module: Module) -> Cost:
        """Return the cost of a partitioned program without the work of fused operations."""
        if self.machine is None:
            return _count_work(module)
        return (least_seconds(module, self.machine),)


def _count_work(module: Module) -> tuple[int, int, int]:
    """Return the flops, the bytes sent and the number of collectives of a partitioned program."""
    total = sum_collectives(list_collectives(module))
    return sum(executed_flops(module).values()), total.sent, total.executions


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
