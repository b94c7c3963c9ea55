"""Defer reshapes, transposes and broadcasts so that operations read and write existing layouts.

before: `%x.pieces = reshape(%x) : f32[4, 16, 784]`
        `%h = dot(%x.pieces, %w, dims="abi,ih->abh") : f32[4, 16, 128]`
        `%h.whole = reshape(%h) : f32[64, 128]`
after:  `%h = dot(%x, %w, dims="ab,bc->ac") : f32[64, 128]`

Reshapes, transposes and broadcasts are views of their operands. An operation computes in the
dimensions of the underlying values as far as its operands agree on them, and its result is a view
in the dimensions of the program. Values do not change, except that a contraction may add in another
order.
"""

from dataclasses import dataclass, replace

from shardir.build import Builder
from shardir.ir import Function, Module
from shardir.passes.folding import computing, contraction, control, lookups, moves, windows
from shardir.passes.folding.folder import Folder, Rule
from shardir.passes.pipeline import Pass
from shardir.passes.program import names_of

RULES: dict[str, Rule] = {
    **moves.RULES,
    **computing.RULES,
    **contraction.RULES,
    **control.RULES,
    **lookups.RULES,
    **windows.RULES,
}


@dataclass(frozen=True)
class FoldViews(Pass, name="fold-views"):
    """Compute in the dimensions of the values that views refer to."""

    def __call__(self, module: Module) -> Module:
        return replace(module, functions=tuple(map(_function, module.functions)))


def _function(function: Function) -> Function:
    body = function.body
    folder = Folder(Builder(names_of(function)), RULES)
    folder.run(body.ops)
    returns = [folder.value(value) for value in body.returns]
    return replace(function, body=folder.b.block(body.params, returns))
