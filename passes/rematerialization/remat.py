"""Compute values again instead of keeping them: less memory for more computation.

before: `%h = dot(%x, %w, dims="bi,ih->bh")`, and after operations that need much memory
        `%g = dot(%e, %h, dims="bc,ch->bh")`
after:  `%h = dot(%x, %w, dims="bi,ih->bh")`, and after these operations
        `%x.1, %w.1 = optimization_barrier(%x, %w)`, `%h.1 = dot(%x.1, %w.1, dims="bi,ih->bh")`,
        `%g = dot(%e, %h.1, dims="bc,ch->bh")`

The budget compares with the peak that `simulate` reports for fused operations.
`passes.rematerialization.eviction` states the algorithm. Loops and branches are never repeated.
Values inside of them are computed again in the same iteration; use `checkpoint` in the body of a
loop to save less from one loop for another. Calls are inlined if the program exceeds the budget.
Run the pass after `cse`, at the end of the pipeline.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from shardir._imports.lazy_import import lazy_import
from shardir.cost.device_rates import DeviceRates
from shardir.cost.memory import Storage, used_by
from shardir.cost.op_cost import cost_of
from shardir.display.byte_sizes import parse_bytes, show_bytes
from shardir.errors import MachineError, PipelineError
from shardir.ir.module import Block, Module, Op, Value
from shardir.passes.fusion.fuse import Fuse
from shardir.passes.pipeline import Pass
from shardir.passes.rewriting import check_partitioned, used_names
from shardir.passes.simplify.cse import CommonSubexpressionElimination
from shardir.passes.simplify.inline import Inline
from shardir.passes.simplify.inline_calls import inline_calls

if TYPE_CHECKING:
    from shardir import machine as machines
    from shardir.passes.rematerialization import eviction
    from shardir.passes.simulation import memory_use, work
else:
    machines = lazy_import("shardir.machine")
    eviction = lazy_import("shardir.passes.rematerialization.eviction")
    memory_use = lazy_import("shardir.passes.simulation.memory_use")
    work = lazy_import("shardir.passes.simulation.work")

MAX_ATTEMPTS = 3
"""The maximum number of limits that are tried, each lower by the bytes by which the last result
exceeds the budget: the fusion of repeated operations may differ from that of the first ones."""
SEARCH_STEPS = 4
"""Bisections of the interval in which the lowest possible budget is, for the error message."""


class BudgetError(PipelineError):
    """A program that does not fit into the budget of `remat`, but into one of `possible` bytes."""

    def __init__(self, text: str, possible: int) -> None:
        super().__init__(text)
        self.possible = possible


@dataclass(frozen=True)
class Remat(Pass, name="remat"):
    """Compute values again where their memory is needed, until the program fits into `budget`.

    `budget` is a size in bytes for each device, such as `2GiB`. `machine` is the name of a machine
    whose times decide what is computed again; without it, typical rates of accelerators do. With
    `donated`, results reuse the memory of arguments of their type.
    """

    budget: str = ""
    machine: str = ""
    donated: bool = False

    def __call__(self, module: Module) -> Module:
        budget = self._parse_budget()
        check_partitioned(module, self)
        seconds_of = self._seconds_of(module)
        kernels = form_kernels(module)
        donated = range(len(kernels.main.body.params)) if self.donated else ()
        before = memory_use.memory_use(kernels, donated)
        if before.peak <= budget:
            return module
        # Values inside of a call cannot be computed again after it.
        search = _Search(form_kernels(inline_calls(module)), donated, seconds_of)
        result, reached = search.fit(budget)
        if result is not None:
            return result
        possible, found = search.find_possible_budget(budget, before, reached)
        raise BudgetError(
            f"remat cannot fit @{module.main.name} into a budget of {show_bytes(budget)} on each "
            f"device; it needs {show_bytes(before.peak)} without this pass, and "
            f"{show_bytes(found.peak)} with it, at {found.position}; choose a budget of "
            f"{possible} bytes, or shard the values of that line further",
            possible,
        )

    def _parse_budget(self) -> int:
        if not self.budget:
            raise PipelineError("remat needs a budget; write remat{budget=2GiB}")
        try:
            return parse_bytes(self.budget)
        except MachineError:
            raise PipelineError(
                f"the budget of remat is {self.budget!r}, which is not a memory size; write "
                "remat{budget=2GiB}"
            ) from None

    def _seconds_of(self, module: Module) -> Callable[[Op], float]:
        if not self.machine:
            rates = DeviceRates()
            return lambda op: rates.seconds(cost_of(op))
        axes = {name: size for mesh in module.meshes for name, size in mesh.axes}
        model = work.WorkModel(machines.load_machine(self.machine, axes=axes), module.meshes)
        return lambda op: model.work_of(op).duration / work.PICOSECONDS


def form_kernels(module: Module) -> Module:
    """Return the module with fused operations, which determine the values that need memory."""
    return Fuse()(Inline()(module))


@dataclass(frozen=True, slots=True)
class _Search:
    """The search of operations to repeat in a module of kernels, for one budget or several."""

    kernels: Module
    donated: Sequence[int]
    seconds_of: Callable[[Op], float]

    def fit(self, budget: int) -> "tuple[Module | None, memory_use.MemoryUse | None]":
        """Return a module that fits into a budget, if one is found, and the lowest memory that was
        reached."""
        exceeding: list[memory_use.MemoryUse] = []
        limit = budget
        for _ in range(MAX_ATTEMPTS):
            result = self._rematerialize(limit)
            if result is None:
                break
            found = memory_use.memory_use(form_kernels(result), self.donated)
            if found.peak <= budget:
                return result, found
            exceeding.append(found)
            limit -= found.peak - budget
        return None, min(exceeding, key=lambda each: each.peak, default=None)

    def find_possible_budget(
        self,
        impossible: int,
        before: "memory_use.MemoryUse",
        reached: "memory_use.MemoryUse | None",
    ) -> "tuple[int, memory_use.MemoryUse]":
        """Return a budget for which a module is found, and its memory, by bisection between an
        impossible one and the memory without repetitions."""
        possible, found = before.peak, before
        impossible = max(impossible, self._largest_operation() - 1)
        budget = (impossible + possible) // 2 if reached is None else reached.peak
        for _ in range(SEARCH_STEPS):
            result, reached = self.fit(budget)
            if result is None or reached is None:
                impossible = budget
            else:
                possible, found = budget, reached
            budget = (impossible + possible) // 2
        return possible, found

    def _largest_operation(self) -> int:
        """Return the bytes of the arguments, and of the operands and results of the operation of
        which these need most; no repetition reduces them."""
        body = self.kernels.main.body
        arguments = sum(value.type.nbytes for value in body.params)
        storage = memory_use.share_memory(body, self.donated)
        return arguments + _largest_operation_of(body, storage, set(body.params))

    def _rematerialize(self, limit: int) -> Module | None:
        """Return a module with values computed again, without fused operations; `None` if too many
        operations would be repeated."""
        main = self.kernels.main
        arguments = sum(value.type.nbytes for value in main.body.params)
        storage = memory_use.share_memory(main.body, self.donated)
        body = eviction.rematerialize_block(
            main.body, storage, limit - arguments, self.seconds_of, used_names(main)
        )
        if body is None:
            return None
        functions = tuple(
            replace(each, body=body) if each is main else each for each in self.kernels.functions
        )
        # The inlined operations include those that fusion duplicated.
        inlined = Inline()(replace(self.kernels, functions=functions))
        return CommonSubexpressionElimination()(inlined)


def _largest_operation_of(block: Block, storage: Storage, outside: set[Value]) -> int:
    """Return the most bytes of the operands and results of one operation of a block, without values
    `outside` of it. An operation with blocks needs those of an operation in it too."""
    largest = 0
    for op in block.ops:
        values = {storage.get(value, value) for value in (*used_by(op), *op.results)} - outside
        own = sum(value.type.nbytes for value in values)
        blocks = () if op.spec.is_loop_nest else op.blocks
        nested = (
            sum(value.type.nbytes for value in set(inner.params) - storage.keys())
            + _largest_operation_of(inner, storage, outside | values | set(inner.params))
            for inner in blocks
        )
        largest = max(largest, own + max(nested, default=0))
    return largest
