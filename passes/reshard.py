"""Insert explicit reshards, so that each operation can run on local shards.

before: `%y = add(%a, %b) : f32[8@x]` with `%a: f32[8@x]`, `%b: f32[8@-]`
after:  `%b.cut = reshard(%b) : f32[8@x]`, then `%y = add(%a, %b.cut) : f32[8@x]`

Afterwards the tensors of every operation are sharded alike along its factors, values that enter and
leave a block have the shardings of the block, and results have those of the function. A sharded
reduced factor leaves an unreduced value, `%3.part`, and the `reshard` after it completes the
reduction. Shardings that do not divide a dimension lead to padding at its end (see
`shardir.passes.resharding.uneven`); an operation states in `why` where padding begins, or why it
is impossible. The `why` of each `reshard` states its purpose; `shardir.passes.resharding.planner`
chooses its collectives.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from shardir.errors import PartitionError
from shardir.factors import FactorRule
from shardir.ir import Block, Function, Loc, Module, Op, Value
from shardir.mesh import Mesh
from shardir.ops.manual import manual_computation, with_cuts
from shardir.opset import OPS
from shardir.passes.align import Alignment, loops_of, reduction_of
from shardir.passes.flow import Flow
from shardir.passes.layouts import LAYOUTS, alignment_of
from shardir.passes.pipeline import Pass
from shardir.passes.planner import same_placement
from shardir.passes.prices import price
from shardir.passes.program import in_order, names_of, rebuild_global_programs
from shardir.passes.reasons import Words
from shardir.passes.uneven import MODES, loops_that_pad, settled, uneven_dims
from shardir.placement import Sharding

IDENTITIES = ("reshard", "sharding_constraint")
"""Operations whose result equals their operand, with another sharding."""
FALLBACKS = ("replicate", "error")
"""Treatment of operations without a factor rule."""


@dataclass(frozen=True)
class Reshard(Pass, name="reshard"):
    """Insert `reshard` wherever shardings are incompatible.

    `uneven`: treatment of shardings that do not divide their dimension. `pad` keeps them,
    `replicate` trims them to the axes that divide, and `error` raises `PartitionError`. Parameters
    and results keep the stated shardings in any case.

    `layouts`: the shardings with which an operation with incompatible operands runs: those with the
    `cheapest` reshards, or those of OpenXLA Shardy (`shardy`).

    `on_fallback`: treatment of an operation with sharded operands but no factor rule: every device
    computes all of it (`replicate`), and the reshards state the bytes received for that; or `error`
    raises `PartitionError`.
    """

    choices: ClassVar = {"uneven": MODES, "layouts": LAYOUTS, "on_fallback": FALLBACKS}

    uneven: str = "pad"
    layouts: str = "cheapest"
    on_fallback: str = "replicate"

    def __call__(self, module: Module) -> Module:
        return rebuild_global_programs(
            module, lambda function, mesh: rebuilt(function, Rewriter(mesh, function, self))
        )


def rebuilt(function: Function, rewriter: "Rewriter") -> Function:
    """Return the function with explicit reshards."""
    body = function.body
    scope = Scope({p: rewriter.settled(p, border=True) for p in body.params}, None)
    ops = rewriter.ops(body, scope)
    returns, results = [], []
    for i, (value, asked) in enumerate(zip(body.returns, function.results, strict=True)):
        new = scope.value(value)
        target = rewriter.asked(asked, value, new)
        why = f"result {i} of @{function.name} needs {rewriter.words.shown(target)}"
        returns.append(rewriter.moved(new, target, scope, ops, None, why))
        results.append(told(target))
    return replace(function, body=Block(scope.params(body), tuple(ops), tuple(returns)),
                   results=tuple(results))  # fmt: skip


class Scope:
    """Rewritten values of a block, and the resharded copies that are available."""

    def __init__(self, new: dict[Value, Value], outer: "Scope | None") -> None:
        self.new, self.outer = new, outer
        self.places: dict[tuple[Value, Sharding], Value] = {}

    def value(self, old: Value) -> Value:
        found = self.new.get(old)
        if found is None:
            assert self.outer is not None, f"%{old.name} is not defined"
            return self.outer.value(old)
        return found

    def place(self, value: Value, sharding: Sharding) -> Value | None:
        found = self.places.get((value, sharding))
        return self.outer.place(value, sharding) if found is None and self.outer else found

    def params(self, block: Block) -> tuple[Value, ...]:
        return tuple(self.new[p] for p in block.params)


class Rewriter:
    """Inserts reshards into the blocks of one function."""

    def __init__(self, mesh: Mesh, function: Function, options: Reshard) -> None:
        self.mesh = mesh
        self.uneven, self.layouts = options.uneven, options.layouts
        self.on_fallback = options.on_fallback
        self.names = names_of(function)
        self.words = Words(mesh)

    # Final shardings

    def settle(self, sharding: Sharding | None, value: Value, *, border: bool = False) -> Sharding:
        """Return the sharding closed, and without axes that do not divide unless they are
        padded."""
        if sharding is None:
            return Sharding.whole(self.mesh.name, value.type.rank)
        shape = value.type.shape
        odd = uneven_dims(sharding, shape)
        if odd and self.uneven == "error":
            raise PartitionError(self.words.uneven(sharding, value, odd[0]))
        if odd and border:
            return sharding.close()
        return settled(sharding, shape, pads=self.uneven == "pad")

    def settled(self, value: Value, *, border: bool = False) -> Value:
        sharding = told(self.settle(value.sharding, value, border=border))
        return value if sharding == value.sharding else replace(value, sharding=sharding)

    def asked(self, sharding: Sharding | None, old: Value, new: Value) -> Sharding:
        """Return the stated sharding of a function result; that of the value if none is stated."""
        return self.settle(sharding, old, border=True) if sharding else self.of(new)

    def of(self, value: Value) -> Sharding:
        """Return the final sharding of a value."""
        return value.sharding or self.whole(value)

    same = staticmethod(same_placement)

    def whole(self, value: Value) -> Sharding:
        return Sharding.whole(self.mesh.name, value.type.rank)

    # Operations

    def ops(self, block: Block, scope: Scope) -> list[Op]:
        made: list[Op] = []
        for op in block.ops:
            if op.name == "sharding_group":
                continue  # propagation has decided the group's sharding
            if op.name in IDENTITIES:
                self.identity(op, scope, made)
            elif op.spec is manual_computation:
                self.manual(op, scope, made)
            elif op.blocks or op.spec.edges:
                self.control(op, scope, made)
            else:
                self.plain(op, scope, made)
        return made

    def identity(self, op: Op, scope: Scope, made: list[Op]) -> None:
        """Rewrite an explicit reshard or constraint; drop it if the operand already has the
        sharding."""
        source, result = scope.value(op.operands[0]), self.settled(op.result)
        if self.same(self.of(source), self.of(result)):
            scope.new[op.result] = source
            return
        why = op.why or f"%{result.name} = {op.name} states {self.words.shown(self.of(result))}"
        self.reshard(source, result, scope, made, op.loc, why)
        scope.new[op.result] = result

    def plain(self, op: Op, scope: Scope, made: list[Op]) -> None:
        """Rewrite an operation without blocks: align its operands and results."""
        operands = tuple(map(scope.value, op.operands))
        results = tuple(map(self.settled, op.results))
        rule = self.loops(op)
        fitting, reduction = self.fitting(op, rule, operands, results)
        count = len(operands)
        moved = []
        for i, (value, sharding) in enumerate(zip(operands, fitting.tensors, strict=False)):
            if not self.same(self.of(value), sharding):
                why = self.words.need(op, i, sharding, rule is not None)
                padless = self.words.cannot_pad(op, value, sharding)
                if rule is None:
                    why += padless + self.fallback(op, value, sharding)
                else:
                    why += padless or self.words.instead(op, value, i, rule, fitting)
                value = self.moved(value, sharding, scope, made, op.loc, why)
            moved.append(value)
        raw = []
        for result, sharding in zip(results, fitting.tensors[count:], strict=True):
            if fitting.pending and reduction:
                pending = in_order((*sharding.unreduced, *fitting.pending), self.mesh)
                sharding = replace(sharding, unreduced=pending, reduction=reduction)
            raw.append(self.raw(result, sharding))
        self.finish(
            op, replace(op, operands=tuple(moved)), results, raw, scope, made, rule, fitting
        )

    def fallback(self, op: Op, value: Value, whole: Sharding) -> str:
        """Describe the bytes received because an operation without factor rule needs an unsharded
        operand.

        Raises `PartitionError` if `on_fallback` is `error`.
        """
        nbytes, _ = price(self.of(value), whole, value.type)
        if self.on_fallback == "error" and nbytes:
            at = f" (from {op.loc})" if op.loc else ""
            raise PartitionError(
                f"{op.name} has no sharding rule, and each device would receive "
                f"{nbytes} bytes of %{value.name}, which is sharded "
                f"{self.words.shown(self.of(value))}; state its rule, "
                f"constrain %{value.name} to be replicated, or set on_fallback=replicate{at}"
            )
        return f", for which each device receives {nbytes} bytes" if nbytes else ""

    def loops(self, op: Op) -> FactorRule | None:
        """Return the factor rule along which an operation may be sharded."""
        return loops_of(op)

    def fitting(
        self,
        op: Op,
        rule: FactorRule | None,
        operands: Sequence[Value],
        results: Sequence[Value],
    ) -> tuple[Alignment, str | None]:
        """Return the shardings with which an operation can run, and how unreduced results
        combine."""
        tensors = (*operands, *results)
        if rule is None:
            free = op.spec.partition is not None and not operands
            kept = tuple(
                replace(self.of(t), unreduced=()) if free else self.whole(t) for t in tensors
            )
            return Alignment(kept, (), ()), None
        places = tuple(map(self.of, tensors))
        odd = any(uneven_dims(t.sharding, t.type.shape) for t in tensors)
        padding = loops_that_pad(op, rule) if odd and self.uneven == "pad" else ()
        return alignment_of(op, rule, places, padding, self.layouts), reduction_of(op, rule)

    def raw(self, result: Value, sharding: Sharding) -> Value:
        """Return the value that an operation defines before the reshard to `result`."""
        wanted = self.of(result)
        if self.same(wanted, sharding):
            return result
        suffix = "part" if sharding.unreduced else "raw"
        return Value(result.type, self.names.fresh(f"{result.name}.{suffix}"), told(sharding))

    def finish(
        self,
        old: Op,
        new: Op,
        results: Sequence[Value],
        raw: Sequence[Value],
        scope: Scope,
        made: list[Op],
        rule: FactorRule | None = None,
        fitting: Alignment | None = None,
    ) -> None:
        """Append an operation, and the reshards of its results to their final shardings."""
        why = new.why or ("" if new.blocks else self.words.begins(new.operands, raw))
        made.append(replace(new, results=tuple(raw), why=why))
        for value, result, made_as in zip(old.results, results, raw, strict=True):
            scope.new[value] = result
            if made_as is not result:
                why = self.words.reason(old, result, made_as, rule, fitting)
                self.reshard(made_as, result, scope, made, old.loc, why)

    def control(self, op: Op, scope: Scope, made: list[Op]) -> None:
        """Rewrite an operation with blocks: all values of an edge have one sharding."""
        flow = Flow(op, lambda value: self.of(self.settled(value)), self.whole)
        name = op.results[0].name if op.results else op.name
        operands = []
        for i, value in enumerate(op.operands):
            sharding = flow.operands[i]
            why = self.words.need(op, i, sharding) + self.words.walked(op, value, sharding)
            operands.append(self.moved(scope.value(value), sharding, scope, made, op.loc, why))
        blocks = []
        for number, block in enumerate(op.blocks):
            params = {p: replace(p, sharding=told(flow.params[p])) for p in block.params}
            inner = Scope(params, scope)
            ops = self.ops(block, inner)
            returns = []
            for i, value in enumerate(block.returns):
                sharding = flow.returns[number][i]
                why = f"what {op.name} yields for %{name} needs {self.words.shown(sharding)}"
                returned = inner.value(value)
                returns.append(self.moved(returned, sharding, inner, ops, op.loc, why))
            blocks.append(Block(inner.params(block), tuple(ops), tuple(returns)))
        results = tuple(map(self.settled, op.results))
        raw = [self.raw(result, flow.results[i]) for i, result in enumerate(results)]
        new = replace(op, operands=tuple(operands), blocks=tuple(blocks))
        self.finish(op, new, results, raw, scope, made)

    def manual(self, op: Op, scope: Scope, made: list[Op]) -> None:
        """Rewrite a manual computation: operands have the parameters' shardings behind the manual
        axes."""
        (body,) = op.blocks
        params = {param: self.even(param) for param in body.params}
        inner = Scope(params, None)
        operands = []
        for i, (value, cuts) in enumerate(zip(op.operands, op.attrs["in_axes"], strict=True)):
            sharding = with_cuts(self.of(params[body.params[i]]), cuts)
            why = self.words.need(op, i, sharding)
            operands.append(self.moved(scope.value(value), sharding, scope, made, op.loc, why))
        ops = self.ops(body, inner)
        results = tuple(map(self.settled, op.results))
        returns, raw = [], []
        for value, result, cuts in zip(body.returns, results, op.attrs["out_axes"], strict=True):
            free = self.returned(op, inner.value(value), result)
            why = f"what {op.name} returns for %{result.name} needs {self.words.shown(free)}"
            returns.append(self.moved(inner.value(value), free, inner, ops, op.loc, why))
            raw.append(self.raw(result, with_cuts(free, cuts)))
        block = Block(inner.params(body), tuple(ops), tuple(returns))
        self.finish(op, replace(op, operands=tuple(operands), blocks=(block,)), results, raw, scope,
                    made)  # fmt: skip

    def returned(self, op: Op, value: Value, result: Value) -> Sharding:
        """Return the sharding of a value that a manual computation returns, without its manual
        axes."""
        return self.of(self.even(value))

    def even(self, value: Value) -> Value:
        """Return a value at the boundary of a manual computation, without padding, which would be
        inside the dimension."""
        sharding = settled(self.of(value), value.type.shape, pads=False)
        return replace(value, sharding=told(replace(sharding, unreduced=(), reduction="add")))

    # Moving values

    def moved(
        self,
        value: Value,
        target: Sharding,
        scope: Scope,
        made: list[Op],
        loc: Loc | None,
        why: str,
    ) -> Value:
        """Return `value` with the sharding `target`: itself, or an existing or new reshard of
        it."""
        if self.same(self.of(value), target):
            return value
        found = scope.place(value, target)
        if found is None:
            suffix = "cut" if any(target.axes) else "whole"
            found = Value(value.type, self.names.fresh(f"{value.name}.{suffix}"), told(target))
            self.reshard(value, found, scope, made, loc, why)
        return found

    def reshard(
        self,
        source: Value,
        result: Value,
        scope: Scope,
        made: list[Op],
        loc: Loc | None,
        why: str,
    ) -> None:
        """Append a reshard, and record that both values are the same tensor in different
        shardings."""
        if begins := self.words.begins((source,), (result,)):
            why = f"{why}; {begins}"
        made.append(Op(OPS["reshard"], (source,), (result,), {}, (), loc, why))
        scope.places[source, self.of(result)] = result
        if not self.of(source).unreduced:
            scope.places[result, self.of(source)] = source


def told(sharding: Sharding) -> Sharding | None:
    """Return a sharding as it is written on a value: `None` on a replicated scalar."""
    return sharding if sharding.dims or sharding.unreduced else None
