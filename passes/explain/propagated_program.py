"""The propagation histories of a module or a lowered function.

The order of the worklist and single annotations are tried by further runs of propagation, without a
record. These begin with the same networks, so each function is prepared once for all of them.
"""

from dataclasses import dataclass
from functools import cache, cached_property
from time import perf_counter
from typing import Protocol

from shardir.errors import PartitionError, ShardirError, suggest_name
from shardir.ir.location import SourceLocations
from shardir.ir.module import Function, Module
from shardir.op_rules.custom_rules import rules_in_force
from shardir.passes.explain.explained_pipeline import ExplainedPipeline
from shardir.passes.explain.propagation_history.history import (
    RESULT_PREFIX,
    FunctionHistory,
    ShardingChange,
)
from shardir.passes.pipeline import DEFAULT_PIPELINE, Pass, PassObserver, Pipeline
from shardir.passes.propagation.propagate import PreparedFunction, Propagate, initial_state
from shardir.passes.propagation.propagation_levels import PropagationState
from shardir.passes.propagation.propagation_network import StepperTable
from shardir.passes.propagation.step import ShardingTable
from shardir.passes.rewriting import all_values
from shardir.text.number_text import parse_natural_number


class PreparedProgram:
    """A program whose functions are prepared when they are first used.

    `propagate` states how functions are prepared, and whether it is conservative; its other options
    do not matter.
    """

    def __init__(self, module: Module, propagate: Propagate) -> None:
        self._rules = rules_in_force()
        self._propagate = propagate
        self.module = self._rules.bind(module)
        self.steppers = StepperTable(
            ShardingTable(self.module), explain=False, conservative=propagate.conservative
        )
        self.function = cache(self._prepare)

    @property
    def shardings(self) -> ShardingTable:
        """The shardings that the states of functions refer to."""
        return self.steppers.shardings

    def source(self, name: str) -> Function:
        """Return a function of the module."""
        return next(function for function in self.module.functions if function.name == name)

    def _prepare(self, name: str) -> PreparedFunction:
        """Return a function in its state before propagation."""
        return self._propagate.prepare_function(self.source(name), self.steppers, self._rules)

    def initial_state(self, name: str) -> PropagationState:
        """Return the shardings of a function before propagation."""
        prepared = self.function(name)
        return initial_state(
            self.source(name), prepared.network, prepared.stated, self.shardings,
            units=not self._propagate.prepare,
        )  # fmt: skip

    def final_state(self, name: str, propagate: Propagate) -> PropagationState:
        """Return the shardings of a function after propagation with other options."""
        state = self.initial_state(name)
        propagate.start_run(self.function(name), self.steppers).run(state)
        return state


class HasModule(Protocol):
    """A lowered function: a traced program, and the pipeline with which it is compiled."""

    @property
    def module(self) -> Module: ...

    @property
    def pipeline(self) -> str: ...


Program = Module | HasModule


class ExplainError(ShardirError, ValueError):
    """A request that cannot be answered for a program."""


def result_number(function: Function, name: str) -> int:
    """Return the number of a result called `result 0`; raises `ExplainError` if it is absent."""
    number = parse_natural_number(name.removeprefix(RESULT_PREFIX).strip())
    count = len(function.result_shardings)
    if number is not None and number < count:
        return number
    if count == 0:
        results = "it has no results"
    elif count == 1:
        results = "its only result is result 0"
    else:
        results = f"its results are 0 to {count - 1}"
    raise ExplainError(f"@{function.name} has no {name}; {results}")


@dataclass(frozen=True)
class PropagatedProgram:
    """A module before propagation and after it, the module with the decided shardings, and the
    history of each function."""

    pipeline: ExplainedPipeline
    module: Module
    propagated: Module
    decided: Module
    histories: dict[str, FunctionHistory]

    @cached_property
    def prepared(self) -> PreparedProgram:
        """The program before propagation, for further runs without a record."""
        return PreparedProgram(self.module, self.pipeline.propagate)

    def history(self, function: str | None = None) -> FunctionHistory:
        """Return the history of a function, of the first by default."""
        name = self.module.main.name if function is None else function.removeprefix("@")
        if name not in self.histories:
            hint = suggest_name(name, self.histories) or _list_functions(self.histories)
            raise ExplainError(f"no function is called {name!r}; {hint}")
        return self.histories[name]


def _list_functions(histories: dict[str, FunctionHistory]) -> str:
    return f"there is {', '.join('@' + name for name in histories)}"


def module_of(program: Program) -> Module:
    """Return the module of a program; raise `ExplainError` if there is nothing to propagate."""
    module = program if isinstance(program, Module) else program.module
    if not module.functions:
        raise ExplainError("there is no function to explain")
    if not any(not mesh.is_maximal for mesh in module.meshes):
        raise ExplainError("the program has no mesh, so nothing in it is sharded")
    for function in module.functions:
        if function.spmd:
            raise ExplainError(
                f"@{function.name} has been partitioned; explain the program before that"
            )
    return module


def pipeline_of(
    program: Program, pipeline: str | None = None, propagate: Propagate | None = None
) -> ExplainedPipeline:
    """Return the pipeline that is explained.

    By default it is the one with which a lowered function is compiled, and the default pipeline of
    a module. `propagate` replaces its propagation pass.
    """
    own = DEFAULT_PIPELINE if isinstance(program, Module) else program.pipeline
    return ExplainedPipeline.divide(own if pipeline is None else pipeline, propagate)


def propagate_with_history(
    program: Program,
    pipeline: ExplainedPipeline,
    places: SourceLocations | None,
    watch: PassObserver | None = None,
) -> PropagatedProgram:
    """Propagate once with a record, and run the passes that decide shardings afterwards.

    These do not run if the program cannot be partitioned. `watch` observes the passes.
    """
    module = Pipeline(pipeline.preparing)(module_of(program), watch)
    start = perf_counter()
    propagated, record = pipeline.propagate.run_recorded(module)
    if watch is not None:
        watch(pipeline.propagate, module, propagated, perf_counter() - start)
    changes: dict[tuple[str, str], list[ShardingChange]] = {}

    def observe(step: Pass, before: Module, after: Module, seconds: float) -> None:
        note_changes(changes, step, before, after)
        if watch is not None:
            watch(step, before, after, seconds)

    try:
        decided = Pipeline(pipeline.deciding)(propagated, observe)
    except PartitionError:
        return propagate_with_history(program, pipeline.without_deciding, places)
    locations = places if places is not None else getattr(program, "user_locations", {})
    return PropagatedProgram(
        pipeline,
        module,
        propagated,
        decided,
        {
            name: FunctionHistory(decided, story, locations, pipeline.reshard, changes)
            for name, story in record.histories.items()
        },
    )


def note_changes(
    changes: dict[tuple[str, str], list[ShardingChange]], step: Pass, before: Module, after: Module
) -> None:
    """Add the values whose axes a pass changed, by function and name."""
    old = {function.name: function for function in before.functions}
    for function in after.functions:
        if function.name not in old or old[function.name] is function:
            continue
        values = {value.name: value for value in all_values(old[function.name].body)}
        reasons = {value: op.why for op in function.body.walk() for value in op.results}
        for value in all_values(function.body):
            earlier = values.get(value.name)
            if (
                earlier is None
                or earlier.type != value.type
                or (earlier.sharding and earlier.sharding.axes)
                == (value.sharding and value.sharding.axes)
            ):
                continue
            changes.setdefault((function.name, value.name), []).append(
                ShardingChange(step.name, earlier.sharding, value.sharding, reasons.get(value, ""))
            )
        stated = (old[function.name].result_shardings, function.result_shardings)
        for number, (one, other) in enumerate(zip(*stated, strict=True)):
            if (one and one.axes) != (other and other.axes):
                changes.setdefault((function.name, f"{RESULT_PREFIX}{number}"), []).append(
                    ShardingChange(step.name, one, other, "")
                )
