"""Compute the values of layers again in the gradient, except those that a policy saves.

before: `%a1 = tanh(%p1)`, operations of later layers, `%p1.grad = mul(%h2.grad, %a1)`
after:  `%a1 = tanh(%p1)`, operations of later layers,
        `%h1.1, %w.2 = optimization_barrier(%h1, %w)`,
        `%p1.1 = dot(%h1.1, %w.2, dims="bi,ih->bh")`, `%a1.1 = tanh(%p1.1)`,
        `%p1.grad = mul(%h2.grad, %a1.1)`

The pass does to a differentiated program what a `checkpoint` of each layer does before: the values
that one layer passes to the next are saved, and the policy `save` chooses among the others. A value
is computed again before its first use in the gradient. `layers` finds the layers. The last one is
left as it is, because the gradient begins with it. Chen et al., arXiv:1604.06174.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from shardir._imports.lazy_import import lazy_import
from shardir.cost.memory import used_by
from shardir.errors import PipelineError
from shardir.ir.builder import UniqueNames, substitute
from shardir.ir.module import Block, Module, Op, Value
from shardir.passes.autodiff.checkpoint_policies import is_saved
from shardir.passes.autodiff.phases import is_in_gradient
from shardir.passes.pipeline import Pass
from shardir.passes.rematerialization.layers import ForwardLayers, find_layers
from shardir.passes.rematerialization.recomputation import copy_operation, is_recomputable
from shardir.passes.rewriting import check_partitioned, used_names
from shardir.passes.simplify.cse import CommonSubexpressionElimination
from shardir.passes.simplify.dce import DeadCodeElimination

if TYPE_CHECKING:
    from shardir.passes.simulation import memory_use
else:
    memory_use = lazy_import("shardir.passes.simulation.memory_use")

SAVE_POLICIES: dict[str, Sequence[str]] = {
    "nothing": (),
    "dots": ("dots",),
    "dots-without-batch": ("dots-without-batch",),
}
"""The clauses of a checkpoint policy, by the value of the option `save`."""


@dataclass(frozen=True)
class RematLayers(Pass, name="remat-layers"):
    """Compute the values of layers again in the gradient.

    `save` states which values of a layer are saved: `nothing`, the results of all products
    (`dots`), or of those without batch dimensions. `count` is the number of layers whose values are
    computed again, the first ones; 0 stands for all.
    """

    choices: ClassVar = {"save": tuple(SAVE_POLICIES)}

    save: str = "nothing"
    count: int = 0

    def __call__(self, module: Module) -> Module:
        check_partitioned(module, self)
        main = module.main
        layers = _find_layers_of(module)
        repeated = layers.repeatable_count
        if not repeated:
            raise PipelineError(
                f"remat-layers finds no repeated layers in @{main.name}; use remat{{budget=2GiB}}, "
                "or checkpoint in the body of a loop over layers"
            )
        if not 0 <= self.count <= repeated:
            raise PipelineError(
                f"remat-layers cannot compute {self.count} layers of @{main.name} again; it has "
                f"{repeated} before the last one"
            )
        freed = _find_freed(layers, SAVE_POLICIES[self.save], self.count or repeated)
        body = _Rewriter(main.body, freed, used_names(main)).run()
        functions = (replace(main, body=body), *module.functions[1:])
        return DeadCodeElimination()(
            CommonSubexpressionElimination()(replace(module, functions=functions))
        )


def count_layers(module: Module) -> int:
    """Return the number of layers of a partitioned program whose values `remat-layers` can compute
    again."""
    return _find_layers_of(module).repeatable_count


def _find_layers_of(module: Module) -> ForwardLayers:
    body = module.main.body
    return find_layers(body, memory_use.share_memory(body))


def _find_freed(layers: ForwardLayers, save: Sequence[str], count: int) -> set[Value]:
    """Return the values of the first layers that the gradient computes again."""
    freed: set[Value] = set()
    for i, op in enumerate(layers.ops):
        if 0 <= layers.layer_of(i) < count and is_recomputable(op) and not is_saved(save, op):
            freed.update(value for value in op.results if value not in layers.crossing)
    return freed


class _Rewriter:
    """Inserts copies of the operations of freed values before their first uses in the gradient."""

    def __init__(self, block: Block, freed: set[Value], names: UniqueNames) -> None:
        self.block, self.freed, self.names = block, freed, names
        self.makers = {value: op for op in block.ops for value in op.results}
        self.copies: dict[Value, Value] = {}
        self.new_ops: list[Op] = []

    def run(self) -> Block:
        in_gradient: set[Value] = set()
        for op in self.block.ops:
            uses = set(used_by(op))
            if is_in_gradient(op) or not in_gradient.isdisjoint(uses):
                in_gradient.update(op.results)
                for value in dict.fromkeys(used_by(op)):
                    self._compute_again(value, op)
                (op,) = substitute(Block((), (op,), ()), self.copies).ops
            self.new_ops.append(op)
        return replace(self.block, ops=tuple(self.new_ops))

    def _compute_again(self, value: Value, user: Op) -> None:
        """Append copies of the operations that compute a freed value from saved ones."""
        pending = [value]
        while pending:
            value = pending[-1]
            if value not in self.freed or value in self.copies:
                pending.pop()
                continue
            op = self.makers[value]
            missing = [x for x in used_by(op) if x in self.freed and x not in self.copies]
            if missing:
                pending += missing
                continue
            operands = {x: self.copies[x] for x in used_by(op) if x in self.copies}
            copied = copy_operation(op, operands, user, self.names)
            self.new_ops += copied
            self.copies |= zip(op.results, copied[-1].results, strict=True)
            pending.pop()
