"""Dead code elimination.

before: `%unused = exp(%x)`, `%n, %y, %z = while(%zero, %x, %x)`, `return %y`
after:  `%n, %y = while(%zero, %x)`, `return %y`

Operations have no effect besides their results, collectives included: all devices run the same
program, so all of them omit the same collectives. Only operations that declare an effect are kept
in any case. A loop or branch also loses unused results and everything that only these need: values
that a loop carries only to compute themselves, and unused slices of arrays that a scan slices or
stacks.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from shardir.ir.module import Block, Module, Op, Value
from shardir.passes.pipeline import Pass
from shardir.passes.rewriting import KEEP_CHOICES, has_nested_effect


@dataclass(frozen=True)
class DeadCodeElimination(Pass, name="dce"):
    """Remove operations that the function's results do not depend on.

    With `keep=collectives`, collectives are kept too: the other processes execute them in their
    programs.
    """

    keep: str = ""
    choices: ClassVar[dict[str, Sequence[str]]] = KEEP_CHOICES

    def __call__(self, module: Module) -> Module:
        sweeper = _DeadCodeSweeper(self.keep == "collectives")
        functions = tuple(
            replace(function, body=sweeper.block(function.body, set(function.body.returns)))
            for function in module.functions
        )
        return replace(module, functions=functions)


@dataclass(frozen=True)
class _DeadCodeSweeper:
    """Visits blocks from their ends; `keeps` preserves collectives."""

    keeps: bool

    def block(self, block: Block, live: set[Value]) -> Block:
        """Return the block without dead operations; all used values are added to `live`."""
        live_ops: list[Op] = []
        for op in reversed(block.ops):
            if not any(result in live for result in op.results) and not has_nested_effect(
                op, self.keeps
            ):
                continue
            if op.blocks:
                op = _REGION_SWEEPERS.get(op.name, _DeadCodeSweeper.keep_all)(self, op, live)
            live.update(op.operands)
            live_ops.append(op)
        return (
            block
            if len(live_ops) == len(block.ops)
            and all(a is b for a, b in zip(reversed(live_ops), block.ops, strict=True))
            else Block(block.params, tuple(reversed(live_ops)), block.returns)
        )

    def body(self, block: Block, live: set[Value]) -> Block:
        """Sweep a nested block all of whose returned values are live."""
        live.update(block.returns)
        return self.block(block, live)

    def keep_all(self, op: Op, live: set[Value]) -> Op:
        return replace(op, blocks=tuple(self.body(block, live) for block in op.blocks))

    def case(self, op: Op, live: set[Value]) -> Op:
        places = [i for i, result in enumerate(op.results) if result in live]
        blocks = (replace(block, returns=_select(block.returns, places)) for block in op.blocks)
        return replace(
            op,
            results=_select(op.results, places),
            blocks=tuple(self.body(block, live) for block in blocks),
        )

    def while_(self, op: Op, live: set[Value]) -> Op:
        condition, body = op.blocks
        condition_inputs = self.dependences(condition, condition.returns)
        live_carries = {
            i
            for i, result in enumerate(op.results)
            if result in live or condition.params[i] in condition_inputs
        }
        places = self.needed_carries(body, len(op.results), live_carries)
        return replace(
            op,
            operands=_select(op.operands, places),
            results=_select(op.results, places),
            blocks=(
                self.body(replace(condition, params=_select(condition.params, places)), live),
                self.body(
                    Block(_select(body.params, places), body.ops, _select(body.returns, places)),
                    live,
                ),
            ),
        )

    def scan(self, op: Op, live: set[Value]) -> Op:
        (body,) = op.blocks
        carries: int = op.attrs["carries"]
        live_stacked = [i for i in range(carries, len(op.results)) if op.results[i] in live]
        live_results = {i for i in range(carries) if op.results[i] in live}
        live_carries = self.needed_carries(
            body, carries, live_results, _select(body.returns, live_stacked)
        )
        returns = _select(body.returns, [*live_carries, *live_stacked])
        used = self.dependences(body, returns)
        taken = [i for i in range(carries, len(op.operands)) if body.params[i] in used]
        new = Block(_select(body.params, [*live_carries, *taken]), body.ops, returns)
        return replace(
            op,
            operands=_select(op.operands, [*live_carries, *taken]),
            results=_select(op.results, [*live_carries, *live_stacked]),
            attrs={**op.attrs, "carries": len(live_carries)},
            blocks=(self.body(new, live),),
        )

    def manual(self, op: Op, live: set[Value]) -> Op:
        """Remove unused results and unused operands of a manual computation."""
        (body,) = op.blocks
        live_results = [i for i, result in enumerate(op.results) if result in live]
        returns = _select(body.returns, live_results)
        used = self.dependences(body, returns)
        taken = [i for i, param in enumerate(body.params) if param in used]
        attrs = {
            **op.attrs,
            "in_axes": tuple(op.attrs["in_axes"][i] for i in taken),
            "out_axes": tuple(op.attrs["out_axes"][i] for i in live_results),
        }
        return replace(
            op,
            operands=_select(op.operands, taken),
            results=_select(op.results, live_results),
            attrs=attrs,
            blocks=(self.body(Block(_select(body.params, taken), body.ops, returns), live),),
        )

    def needed_carries(
        self, body: Block, carries: int, live: set[int], others: Sequence[Value] = ()
    ) -> list[int]:
        """Return the carried values that those at `live`, or `others`, depend on in some
        iteration."""
        number = {param: i for i, param in enumerate(body.params[:carries])}
        while True:
            used = self.dependences(body, [*(body.returns[i] for i in live), *others])
            more = live | {number[v] for v in used if v in number}
            if more == live:
                return sorted(live)
            live = more

    def dependences(self, block: Block, ends: Sequence[Value]) -> set[Value]:
        """Return all values of a block that `ends` depend on."""
        live = set(ends)
        for op in reversed(block.ops):
            if any(result in live for result in op.results) or has_nested_effect(op, self.keeps):
                live.update(op.uses())
        return live


_REGION_SWEEPERS = {
    "case": _DeadCodeSweeper.case,
    "while": _DeadCodeSweeper.while_,
    "scan": _DeadCodeSweeper.scan,
    "manual_computation": _DeadCodeSweeper.manual,
}


def _select(values: tuple[Value, ...], places: Sequence[int]) -> tuple[Value, ...]:
    return tuple(values[i] for i in places)
