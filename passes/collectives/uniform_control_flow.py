"""Make loops and branches of a per-device program uniform: all devices take the same path.

before: `%y = case(%i) : f32[4] { %a = sin(%x) ... } { %b = exp(%x) ... }`, where `%i` differs
        between devices
after:  `%1 = eq(%i, %0)`, `%a = sin(%x)`, `%b = exp(%x)`, `%y = select(%1, %a, %b)`

Devices that run in lockstep, such as the replicas of an IPU, have one flow of control. A branch
with a divergent index becomes all of its branches and a selection between their results. A loop
with a divergent condition runs until it has ended on all devices, and a device on which it has
ended keeps its carried values. `find_differing` determines which values diverge.

A device also computes the branches that it does not take. A loop in such a branch might never end
there, so a loop runs only as long as its condition holds on a device that takes the branch.

The verifier refuses a collective under a divergent decision, so the pass meets none. `partition`
uses `make_collectives_uniform` for a decision that differs only between the groups of the
collectives below it, such as a branch at position 0 of an axis with a sum along another axis. All
devices then execute these collectives, and the groups that do not need a result discard it. Loops
and branches without a collective remain divergent.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from shardir import ops as specs
from shardir.errors import MergeError, PartitionError
from shardir.ir.builder import Builder, UniqueNames, copy_op, substitute
from shardir.ir.mesh import Mesh
from shardir.ir.module import Block, Function, Module, Op, Value, spmd_mesh_of
from shardir.ir.sharding import Axes, Axis
from shardir.ir.types import TensorType
from shardir.passes.pipeline import Pass
from shardir.verify.divergence import find_differing

FLAG_TYPE = TensorType((), "bool")


class UniformControlFlow(Pass, name="uniform-control-flow"):
    """Replace branches and loops whose decision differs between devices."""

    def __call__(self, module: Module) -> Module:
        main = module.main
        if main.spmd is None:
            return module
        differs = find_differing(main)
        if not any(differs.get(v) for op in main.body.walk() for v in _decisions(op)):
            return module
        function = _UniformControlRewriter(main, differs, spmd_mesh_of(module)).rewrite()
        return replace(module, functions=(function, *module.functions[1:]))


def make_collectives_uniform(function: Function, mesh: Mesh) -> Function:
    """Return a per-device function whose loops and branches with a collective are uniform.

    Each decision above a collective must be equal on the devices of each group of the collective.
    Raises `PartitionError` if such a loop or branch has an effect, such as a callback.
    """
    differs = find_differing(function)
    return _UniformControlRewriter(function, differs, mesh, only_collectives=True).rewrite()


def _decisions(op: Op) -> tuple[Value, ...]:
    """Return the values that decide the control flow of an operation."""
    if op.spec is specs.case:
        return op.operands
    return op.blocks[0].returns if op.spec is specs.while_ else ()


class _UniformControlRewriter:
    """Rewrites the blocks of one function. `new` maps replaced values to their replacements.

    With `only_collectives`, loops and branches that contain no collective remain, unless they are
    inside of one that is rewritten.
    """

    def __init__(
        self,
        function: Function,
        differs: Mapping[Value, Axes],
        mesh: Mesh,
        *,
        only_collectives: bool = False,
    ) -> None:
        self.function = function
        self.differs = dict(differs)
        self.axes = tuple(Axis.full(name, mesh) for name, size in mesh.axes if size > 1)
        self.only_collectives = only_collectives
        self.rewrites_all = not only_collectives
        self.new: dict[Value, Value] = {}
        body = function.body
        blocks = [body, *(block for op in body.walk() for block in op.blocks)]
        self.names = UniqueNames([value.name for block in blocks for value in block.values()])

    def rewrite(self) -> Function:
        b = Builder(self.names)
        self.write(b, self.function.body.ops, None)
        body = replace(self.function.body, ops=tuple(b.ops))
        for result, chosen in self.new.items():
            while chosen in self.new:
                chosen = self.new[chosen]
            self.new[result] = chosen
        return replace(self.function, body=substitute(body, self.new))

    def write(self, b: Builder, ops: Sequence[Op], active: Value | None) -> None:
        """Append operations that run on all devices; only devices where `active` holds need their
        results.

        `None` means that all devices do.
        """
        for op in ops:
            b.loc, b.why = op.loc, op.why
            decided = self._is_divergent(op) and (self.rewrites_all or _has_collective(op))
            if op.spec is specs.case and decided:
                self._write_uniform(self._write_choice, b, op, active)
            elif op.spec is specs.while_ and (decided or active is not None):
                self._write_uniform(self._write_loop, b, op, active)
            elif op.blocks:
                b.append(replace(op, blocks=tuple(self._block(b, x, active) for x in op.blocks)))
            else:
                b.append(op)

    def _is_divergent(self, op: Op) -> bool:
        return any(self.differs.get(value) for value in _decisions(op))

    def _write_uniform(
        self,
        write: Callable[[Builder, Op, Value | None], None],
        b: Builder,
        op: Op,
        active: Value | None,
    ) -> None:
        """Append an operation that becomes uniform, with all loops and branches inside of it: all
        devices compute the inner decisions too, also where they are meaningless."""
        before, self.rewrites_all = self.rewrites_all, True
        write(b, op, active)
        self.rewrites_all = before

    def _block(self, b: Builder, block: Block, active: Value | None) -> Block:
        inner = b.inner()
        self.write(inner, block.ops, active)
        return replace(block, ops=tuple(inner.ops))

    def _write_choice(self, b: Builder, op: Op, active: Value | None) -> None:
        """Append all branches, and selections between their results."""
        (index,) = op.operands
        self._refuse_effects(op)
        b.why = "devices take different branches"
        if index.type.dtype == "bool":
            default, picks = 0, {1: index}
        else:
            default = len(op.blocks) - 1
            picks = {n: b.eq(index, b.full(n, index.type)) for n in range(default)}
        for number, block in enumerate(op.blocks):
            needed = active
            if any(inner.spec is specs.while_ for inner in block.walk()):
                b.loc, b.why = op.loc, f"whether branch {number} is taken here"
                taken = picks[number] if number in picks else _not_any(b, list(picks.values()))
                needed = _and_active(b, active, taken)
            self.write(b, block.ops, needed)
        b.loc, b.why = op.loc, "each device has the result of the branch that it takes"
        for i, result in enumerate(op.results):
            offered = [block.returns[i] for block in op.blocks]
            others = {n: pick for n, pick in picks.items() if offered[n] is not offered[default]}
            chosen = offered[default]
            for number, pick in others.items():
                chosen = b.select(pick, offered[number], chosen)
            if others:
                b.ops[-1] = replace(b.ops[-1], results=(result,))
            else:
                self.new[result] = chosen

    def _write_loop(self, b: Builder, op: Op, active: Value | None) -> None:
        """Append a loop that carries whether it continues on this device, and ends when it
        continues on none."""
        condition, body = op.blocks
        self._refuse_effects(op)
        name = f"{condition.returns[0].name}.local"
        why = "the loop may end in another round on another device"
        first = self._condition(b, op, op.operands, active)

        test = b.inner()
        test.why = why
        going = test.param(FLAG_TYPE, name)
        rest = [test.param(value.type, value.name) for value in condition.params]
        anywhere = test.all_reduce(going, axes=self.axes, op="or")
        tested = test.block([going, *rest], [anywhere])

        step = b.inner()
        going = step.param(FLAG_TYPE, name)
        self.write(step, body.ops, going)
        step.loc, step.why = op.loc, "a device on which the loop has ended keeps what it has"
        selected = [
            old if new is old else step.select(going, new, old)
            for new, old in zip(body.returns, body.params, strict=True)
        ]
        further = self._condition(step, op, selected, going)
        stepped = step.block([going, *body.params], [further, *selected])

        results = (Value(FLAG_TYPE, self.names.fresh(name)), *op.results)
        operands, blocks = (first, *op.operands), (tested, stepped)
        b.append(replace(op, operands=operands, results=results, blocks=blocks, why=why))

    def _condition(
        self, b: Builder, op: Op, carried: Sequence[Value], active: Value | None
    ) -> Value:
        """Return whether the loop goes on here if its carried values are `carried`."""
        condition = op.blocks[0]
        copies: dict[Value, Value] = dict(zip(condition.params, carried, strict=True))
        ops = [copy_op(each, copies, self.names) for each in condition.ops]
        for original, copy in copies.items():
            self.differs.setdefault(copy, self.differs.get(original, ()))
        self.write(b, ops, active)
        b.loc, b.why = op.loc, "whether the loop goes on here"
        holds = condition.returns[0]
        return _and_active(b, active, copies.get(holds, holds))

    def _refuse_effects(self, op: Op) -> None:
        """Raise `MergeError`, or `PartitionError` with `only_collectives`, for an operation with
        effects that only some devices may execute."""
        error: type[MergeError | PartitionError] = MergeError
        reason = "devices of this target execute all branches"
        if self.only_collectives:
            error = PartitionError
            reason = "all devices execute branches and loops with collectives"
        for block in op.blocks:
            for inner in block.walk():
                if inner.spec.effect:
                    raise error(
                        f"{inner.name} is executed by some devices only, because the decision of "
                        f"{op.name} differs between devices, and {reason}; "
                        f"move it out of the {op.name}" + (f" ({inner.loc})" if inner.loc else "")
                    )


def _has_collective(op: Op) -> bool:
    """Return whether a block of an operation contains a collective."""
    return any(inner.spec.collective for block in op.blocks for inner in block.walk())


def _not_any(b: Builder, flags: Sequence[Value]) -> Value:
    """Return whether no flag holds."""
    if not flags:
        return b.full(True, FLAG_TYPE)
    any_flag = flags[0]
    for flag in flags[1:]:
        any_flag = b.or_(any_flag, flag)
    negated: Value = b.not_(any_flag)
    return negated


def _and_active(b: Builder, active: Value | None, flag: Value) -> Value:
    """Return whether a device is active, and the flag holds there."""
    if active is None:
        return flag
    both: Value = b.and_(active, flag)
    return both
