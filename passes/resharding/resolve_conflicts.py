"""Resolve sharding conflicts: shard results that propagation left unsharded by axes of their
operands.

before: `%c = add(%a, %b) : f32[64] on @m` with `%a: f32[64@x]`, `%b: f32[64@y]`, so that both
        are gathered
after:  `%c = add(%a, %b) : f32[64@(x, y)]`, so that `%a` is sharded further and `%b` exchanged

Runs after `propagate{leave_open=true}`, which leaves dimensions open that no annotation closed.
Shardy leaves a result unsharded if its operands conflict. This pass gives such a result the
sharding with which it is computed for the fewest bytes, in one forward walk, and a backward walk
removes every choice that saves nothing. Reductions are completed where they were. Only open
dimensions change, and they keep the axes that they have; results of the function among them may
also keep sub-axes. A choice is kept only if all reshards of the program then send less; the
operation states in `why` what they sent.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from shardir import ops as specs
from shardir.ir.mesh import Mesh
from shardir.ir.module import Block, Function, Module, Op, Value
from shardir.ir.sharding import Sharding
from shardir.passes.def_use import ASSUMED_WHILE_ITERATIONS
from shardir.passes.global_programs import mesh_of_function, place_single_devices
from shardir.passes.pipeline import Pass, Pipeline
from shardir.passes.resharding.align import BlockShardings
from shardir.passes.resharding.cost import reshard_cost, sharding_or_unsharded
from shardir.passes.resharding.explanations import Explanations
from shardir.passes.resharding.result_candidates import (
    has_conflict,
    operation_reshard_cost,
    result_candidates,
)
from shardir.passes.resharding.uneven import uneven_dims

RESHARD_PIPELINE = "merge-shifts,reshard,sink-reductions,sink-reshards,share-reshards"
"""Pipeline that inserts the reshards of a program, by which two programs are compared."""
PINNED_OPERATIONS = (specs.sharding_constraint, specs.sharding_group, specs.reshard, specs.constant)
"""Operations whose operands and results keep their shardings."""


@dataclass(frozen=True)
class ResolveConflicts(Pass, name="resolve-conflicts"):
    """Shard open results where propagation found a conflict, if the program then sends less."""

    def __call__(self, module: Module) -> Module:
        chosen = module
        for i, function in enumerate(module.functions):
            if function.spmd:
                continue
            function = place_single_devices(function, module)
            mesh = mesh_of_function(function, module)
            if mesh is None:
                continue
            closed = _close_shardings(function)
            better = _resolve_function(function, mesh)
            chosen = _replace_function(chosen, i, closed)
            if better is not None:
                other = _replace_function(chosen, i, better)
                if received_bytes(other, i) < received_bytes(chosen, i):
                    chosen = other
        return chosen


def _replace_function(module: Module, at: int, function: Function) -> Module:
    functions = module.functions
    return replace(module, functions=(*functions[:at], function, *functions[at + 1 :]))


def received_bytes(module: Module, function: int = 0) -> int:
    """Return the bytes that a device receives by all reshards; a `while` body counts twice."""
    moved = Pipeline.parse(RESHARD_PIPELINE)(module).functions[function]
    mesh = mesh_of_function(moved, module)
    assert mesh is not None

    def paid(block: Block) -> int:
        total = 0
        for op in block.ops:
            if op.spec is specs.reshard:
                (source,) = op.operands
                ends = (
                    sharding_or_unsharded(source, mesh.name),
                    sharding_or_unsharded(op.result, mesh.name),
                )
                total += reshard_cost(*ends, op.result.type)[0]
            total += sum(map(paid, op.blocks)) * _iterations(op)
        return total

    return paid(moved.body)


def _iterations(op: Op) -> int:
    """Return how often the blocks of an operation run."""
    if op.spec is specs.scan:
        return max(int(op.attrs["length"]), 1)
    return ASSUMED_WHILE_ITERATIONS if op.spec is specs.while_ else 1


def _close_shardings(function: Function) -> Function:
    """Return the function with all shardings closed."""
    body = _with_shardings(function.body, {}, {})
    return replace(function, body=body, result_shardings=_closed_results(function))


def _closed_results(function: Function) -> tuple[Sharding | None, ...]:
    return tuple(s and s.close() for s in function.result_shardings)


def _with_shardings(block: Block, places: dict[Value, Sharding], why: dict[Op, str]) -> Block:
    """Return the block with the given shardings, closed, and the reasons in `why`."""
    new: dict[Value, Value] = {}

    def convert_value(old: Value) -> Value:
        sharding = places.get(old, old.sharding)
        sharding = sharding and sharding.close()
        if sharding != old.sharding:
            new[old] = replace(old, sharding=sharding)
        return new.get(old, old)

    def replace_uses(values: tuple[Value, ...]) -> tuple[Value, ...]:
        return tuple([new.get(v, v) for v in values])

    def convert_op(op: Op) -> Op:
        rebuilt = op.with_tensors(replace_uses(op.operands), tuple(map(convert_value, op.results)))
        blocks = tuple(map(convert_block, op.blocks))
        if not blocks and op not in why:
            return rebuilt
        return replace(rebuilt, blocks=blocks, why=why.get(op, op.why))

    def convert_block(block: Block) -> Block:
        params = tuple(map(convert_value, block.params))
        return Block(params, tuple(map(convert_op, block.ops)), replace_uses(block.returns))

    rebuilt = convert_block(block)
    return rebuilt if new else block


@dataclass(eq=False, slots=True)
class _ShardingUse:
    """A use of a value and how often it runs: an operation, or (`None`) a required sharding
    `place`."""

    op: Op | None
    times: int
    place: Sharding | None = None


@dataclass(eq=False, slots=True)
class _ConflictSurvey:
    """The operations whose results can be decided, in order, and the uses of each value."""

    mesh: str
    ops: dict[Op, int] = field(default_factory=dict)
    users: dict[Value, list[_ShardingUse]] = field(default_factory=dict)
    pinned: set[Value] = field(default_factory=set)

    def block(self, block: Block, times: int) -> None:
        for op in block.ops:
            operands = dict.fromkeys(op.operands)
            if op.spec in PINNED_OPERATIONS or op.spec is specs.manual_computation:
                self.pinned.update((*operands, *op.uses(), *op.results))
            elif op.blocks or op.spec.edges:
                self.control(op, times)
            else:
                self.ops[op] = times
                for value in operands:
                    self.users.setdefault(value, []).append(_ShardingUse(op, times))

    def control(self, op: Op, times: int) -> None:
        """Record an operation with blocks; values of its edges keep their shardings."""
        flow = BlockShardings(
            op, self.place, lambda v: Sharding.fully_replicated(self.mesh, v.type.rank)
        )
        inside = times * _iterations(op)
        self.pinned.update(op.results)
        for value, sharding in zip(op.operands, flow.operands, strict=True):
            self.users.setdefault(value, []).append(_ShardingUse(None, times, sharding))
        for block, places in zip(op.blocks, flow.returns, strict=True):
            self.block(block, inside)
            for value, sharding in zip(block.returns, places, strict=True):
                self.users.setdefault(value, []).append(_ShardingUse(None, inside, sharding))

    def place(self, value: Value) -> Sharding:
        return sharding_or_unsharded(value, self.mesh).close()


class _ConflictResolver:
    """The shardings of the values of one function during resolution."""

    def __init__(self, function: Function, mesh: Mesh) -> None:
        self.survey = _ConflictSurvey(mesh.name)
        self.survey.block(function.body, 1)
        self.changed: dict[Value, Sharding] = {}
        self.maker = {op.results[0]: op for op in self.survey.ops if len(op.results) == 1}
        for value, requested in zip(function.body.returns, function.result_shardings, strict=True):
            if requested is not None and not any(dim.open for dim in requested.dims):
                use = _ShardingUse(None, 1, requested.close())
                self.survey.users.setdefault(value, []).append(use)

    def place(self, value: Value) -> Sharding:
        return self.changed.get(value) or self.survey.place(value)

    def reshard_cost(self, op: Op) -> tuple[int, int]:
        """Return bytes and collectives of the reshards of one run of an operation."""
        return operation_reshard_cost(op, tuple(map(self.place, op.tensors)))

    def forward(self) -> None:
        for op in self.survey.ops:
            if len(op.results) != 1 or not self.is_open(op.result):
                continue
            places = tuple(map(self.place, op.operands))
            if not any(map(any, (sharding.axes for sharding in places))):
                continue
            if not has_conflict(op, (*places, self.place(op.result))):
                continue
            best, least = None, self.reshard_cost(op)
            for offer in result_candidates(op, places, self.place(op.result)):
                if not is_extension(offer, op.result.sharding, op.result):
                    continue
                cost = operation_reshard_cost(op, (*places, offer))
                if cost < least:
                    best, least = offer, cost
            if best is not None:
                self.changed[op.result] = best

    def is_open(self, value: Value) -> bool:
        sharding = value.sharding
        return (
            sharding is not None
            and any(dim.open for dim in sharding.dims)
            and value not in self.survey.pinned
        )

    def remove_useless_choices(self) -> None:
        """Remove the choices that save nothing."""
        for value in reversed(list(self.changed)):
            now, sharding = self.adjacent_bytes(value), self.changed.pop(value)
            if self.adjacent_bytes(value) > now:
                self.changed[value] = sharding

    def adjacent_bytes(self, value: Value) -> int:
        """Return the bytes of the reshards next to a value."""
        op = self.maker[value]
        total = self.reshard_cost(op)[0] * self.survey.ops[op]
        taken: dict[Sharding, None] = {}
        for use in self.survey.users.get(value, ()):
            if use.op is not None:
                total += self.reshard_cost(use.op)[0] * use.times
            elif use.place is not None and use.place not in taken:
                taken[use.place] = None
                total += reshard_cost(self.place(value), use.place, value.type)[0] * use.times
        return total


def is_extension(sharding: Sharding, stated: Sharding | None, value: Value) -> bool:
    """Return whether a sharding keeps the stated one, changes open dimensions only, divides evenly,
    and has the same pending reduction."""
    if stated is None or uneven_dims(sharding, value.type.shape):
        return False
    if (sharding.unreduced, sharding.reduction) != (stated.unreduced, stated.reduction):
        return False
    replicated = set(stated.replicated)
    return not any(
        axis.overlaps(other) for axis in sharding.used_axes() for other in replicated
    ) and all(
        new.axes[: len(old.axes)] == old.axes and (old.open or new.axes == old.axes)
        for new, old in zip(sharding.dims, stated.dims, strict=True)
    )


def _resolve_function(function: Function, mesh: Mesh) -> Function | None:
    """Return the function with conflicts resolved; `None` if there is nothing to do."""
    resolver = _ConflictResolver(function, mesh)
    resolver.forward()
    resolver.remove_useless_choices()
    results = tuple(_result_shardings(function, resolver))
    if not resolver.changed and results == _closed_results(function):
        return None
    words = Explanations(mesh)
    why = {}
    for value, sharding in resolver.changed.items():
        op = resolver.maker[value]
        reason = (
            f"propagation leaves %{value.name} "
            f"{words.format_sharding(sharding_or_unsharded(value, mesh.name))}; "
            f"made {words.format_sharding(sharding)} instead, its operands send less"
        )
        why[op] = f"{op.why}; {reason}" if op.why else reason
    body = _with_shardings(function.body, resolver.changed, why)
    return replace(function, body=body, result_shardings=results)


def _result_shardings(function: Function, resolver: _ConflictResolver) -> Iterator[Sharding | None]:
    """Yield the shardings of the function results, which take those of the returned values if these
    keep what is stated."""
    closed = _closed_results(function)
    for i, (value, requested) in enumerate(
        zip(function.body.returns, function.result_shardings, strict=True)
    ):
        sharding = resolver.place(value)
        yield sharding if is_extension(sharding, requested, value) else closed[i]
