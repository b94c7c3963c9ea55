"""Select the kernel of a group, or the reason why it has none."""

from shardir.backends.gpu.kernels.arithmetic import REFUSED, RULES
from shardir.backends.gpu.kernels.flat import flat
from shardir.backends.gpu.kernels.group import group_of
from shardir.backends.gpu.kernels.kernel import Kernel, Refusal
from shardir.backends.gpu.kernels.layout import is_free
from shardir.backends.gpu.kernels.parts import in_parts, parts_of
from shardir.backends.gpu.kernels.sizes import Sizes
from shardir.backends.gpu.kernels.terms import OWN
from shardir.backends.gpu.kernels.tiled import tile_of, tiled
from shardir.ir.module import Op
from shardir.ops.control_flow.fused import REDUCTIONS
from shardir.ops.shape.create import iota

FEW = 32
"""Below this number of programs torch is faster on long rows."""


def write_kernel(op: Op, name: str, sizes: Sizes | None = None) -> Kernel | Refusal:
    """Return the kernel of a `fused` operation.

    Its functions are named after `name`, an identifier that no other group of the program has.
    Operands and results are contiguous tensors of the torch types with the names of their element
    types (bool as `torch.bool`).
    """
    sizes = sizes or Sizes()
    (block,) = op.blocks
    for inner in block.ops:
        if reason := _refusal(inner):
            return Refusal(reason)
    for value in block.values():
        if value.type.dtype not in OWN:
            return Refusal(f"Triton has no {value.type.dtype}, the type of %{value.name}")
        if 0 in value.type.shape:
            return Refusal(f"%{value.name}: {value.type} has no elements")
    group = group_of(op, name)
    if not group.layout.reduced:
        return flat(group, sizes)
    tile = tile_of(group, sizes)
    if tile.is_whole:
        return tiled(group, tile)
    parts = parts_of(group, tile, sizes)
    if parts > 1:
        return in_parts(group, tile, parts)
    walked = tile.elements * (tile.ended.size // tile.ended.length)
    if tile.programs < FEW and walked > sizes.alone:
        return Refusal(
            f"it reduces {walked} elements one after the other in {tile.programs} programs"
        )
    return tiled(group, tile)


def _refusal(op: Op) -> str:
    """Return why no kernel can contain an operation, or "" if kernels can."""
    if op.name in REFUSED:
        return f"{REFUSED[op.name]}, as %{op.result.name} = {op.name} needs"
    known = op.name in RULES or op.spec is iota or op.spec in REDUCTIONS or is_free(op)
    return "" if known else f"kernels have no {op.name}, which gives %{op.results[0].name}"
