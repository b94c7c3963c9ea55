"""Fusion: group operations of one loop nest into one `fused` operation.

before: `%2 = exp(%1)`, `%s = sum(%2, dims=[1])`, `%3 = broadcast(%s, dims=[0])`,
        `%4 = div(%2, %3)`
after:  `%4 = fused(%x) : f32[8, 16] { ... %7 = exp(%6) ... %s.1 = sum(%7, dims=[1]) ...
        %8 = broadcast(%s.1, dims=[0]) ... %9 = div(%7, %8) ... }`

`shardir.ops.control_flow.fused` states what a group may contain. Elementwise operations join the
groups of their operands even if these have other uses: a value that is used outside of the group
becomes one more result. Only operations of negligible cost are duplicated into each group that uses
them (broadcasts, iotas, constants, bitcasts), and cheap operations that read fewer tensors than
storing their result would write (`shardir.passes.fusion.duplicate_operations`). Reductions join the
group of their operand, and operations that use their broadcast results join too, so a softmax or a
normalization is one group.

Operations that a target cannot fuse stay outside (`without`), and so do transposes, and reshapes
that do more than add or drop dimensions of size 1.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from shardir.ir.builder import UniqueNames
from shardir.ir.module import Block, Function, Module, Op
from shardir.ops.control_flow.fused import REDUCTIONS
from shardir.ops.control_flow.loop_unification import (
    is_pointwise,
    is_same_width_bitcast,
)
from shardir.passes.fusion.build import (
    build_fused_operations,
    parse_operation_names,
    rebuild_nested_blocks,
)
from shardir.passes.fusion.duplicate_operations import duplicate_cheap_operations
from shardir.passes.fusion.groups import FusionLimits, form_groups
from shardir.passes.pipeline import Pass
from shardir.passes.rewriting import rebuild_functions, used_names


@dataclass(frozen=True)
class Fuse(Pass, name="fuse"):
    """Group elementwise operations and reductions.

    A group uses at most `most_operands` values and has at most `most_ops` operations. `without`
    names operations that are not fused, separated by `+`; `reductions=false` fuses no reductions.
    """

    most_operands: int = 16
    most_ops: int = 96
    without: str = ""
    reductions: bool = True

    def __call__(self, module: Module) -> Module:
        alone = parse_operation_names(self.without)

        def accepts(op: Op) -> bool:
            return op.name not in alone and (self.reductions or op.spec not in REDUCTIONS)

        return fuse(module, accepts, self.most_operands, self.most_ops)


def fuse(
    module: Module,
    accepts: Callable[[Op], bool] = lambda op: True,
    most_operands: int = Fuse.most_operands,
    most_ops: int = Fuse.most_ops,
) -> Module:
    """Return the module with groups of those elementwise operations and reductions that `accepts`
    allows."""

    def is_fusible(op: Op) -> bool:
        is_supported = is_pointwise(op.spec) or op.spec in REDUCTIONS or is_same_width_bitcast(op)
        return is_supported and accepts(op)

    limits = FusionLimits(is_fusible, most_operands, most_ops)
    return rebuild_functions(module, lambda function: _fuse_function(function, limits))


def _fuse_function(function: Function, limits: FusionLimits) -> Function:
    body = _fuse_block(function.body, limits, used_names(function))
    return function if body is function.body else replace(function, body=body)


def _fuse_block(block: Block, limits: FusionLimits, names: UniqueNames) -> Block:
    """Return the block with fused operations; the block itself if it has none."""
    block = rebuild_nested_blocks(block, lambda inner: _fuse_block(inner, limits, names))
    groups = form_groups(block, limits)
    if groups is None:
        return block
    duplicate_cheap_operations(groups, limits.most_operands)
    return build_fused_operations(block, groups, names)
