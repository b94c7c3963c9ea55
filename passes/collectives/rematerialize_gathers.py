"""Repeat all-gathers instead of keeping their results: less memory for more communication.

before: `%w = all-gather(%p, ...)`, used by the forward pass and, much later, by the backward pass
        in `%g = dot(%d, %w, ...)`
after:  `%w.regathered = all-gather(%p, ...)`, `%g = dot(%d, %w.regathered, ...)`, and `%w` is not
        live in between

Fully sharded training (ZeRO stage 3) needs this when the gathered weights do not fit in memory. The
pass is optional, because every device receives the tensor twice. Run it after `cse`, which would
merge the gathers again.
"""

from dataclasses import dataclass, replace

from shardir import ops
from shardir.cost.communication import REQUESTED
from shardir.ir.builder import UniqueNames, substitute
from shardir.ir.module import Block, Module, Op, Value
from shardir.passes.pipeline import Pass
from shardir.passes.rewriting import rebuild_device_programs


@dataclass(frozen=True)
class RematerializeGathers(Pass, name="rematerialize-gathers"):
    """Repeat all-gathers whose results are unused for a long time.

    A result of at least `minimum` bytes with more than `idle` operations between two uses is
    gathered again before the second one.
    """

    minimum: int = 1 << 20
    idle: int = 50

    def __call__(self, module: Module) -> Module:
        return rebuild_device_programs(module, self, self.block)

    def block(self, block: Block, names: UniqueNames) -> Block:
        gathers = {
            op.result: op
            for op in block.ops
            if op.spec is ops.all_gather and op.result.type.nbytes >= self.minimum
        }
        new_ops: list[Op] = []
        now: dict[Value, Value] = {}
        last: dict[Value, int] = {}
        for i, op in enumerate(block.ops):
            used = [value for value in dict.fromkeys(op.uses()) if value in gathers]
            for value in used:
                if i - last[value] > self.idle:
                    gather = gathers[value]
                    again = replace(value, name=names.fresh(f"{value.name}.regathered"))
                    reason = gather.why or REQUESTED
                    why = f"%{value.name} is unused for long before this line; {reason}"
                    operands = tuple(now.get(v, v) for v in gather.operands)
                    new_ops.append(
                        replace(gather, operands=operands, results=(again,), loc=op.loc, why=why)
                    )
                    now[value] = again
                last[value] = i
            if op in gathers.values():
                last[op.result] = i
            if any(value in now for value in used):
                op = substitute(Block((), (op,), ()), {v: now[v] for v in used if v in now}).ops[0]
            if op.blocks:
                inner = tuple(self.block(each, names) for each in op.blocks)
                op = replace(op, blocks=inner)
            new_ops.append(op)
        returns = tuple(now.get(value, value) for value in block.returns)
        return Block(block.params, tuple(new_ops), returns)
