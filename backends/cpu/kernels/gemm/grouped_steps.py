"""Products with instructions that add the products of groups of adjacent K steps
(`dot_product_instructions`).

An element of an operand then consists of the values of such a group. Where K steps are contiguous,
the operand is read as it is; otherwise a copy has the values next to each other. The packed GEMM
computes the product of these elements like one of f32 or i32 with as many K steps as groups.

The instruction of x86 for four values of i8 multiplies unsigned and signed numbers. A copy of the
left operand holds its values plus 128, and the tile subtracts 128 times the sums of the columns
(`microkernel`). All sums wrap around, so that the result is exact.
"""

from collections.abc import Sequence
from itertools import islice
from math import prod
from typing import NamedTuple

from shardir.backends.cpu.codegen.dot_product_instructions import (
    GROUP_INSTRUCTIONS,
    SIGN_BITS_OF_BYTES,
    GroupInstruction,
    MatrixInstruction,
    group_dtype,
)
from shardir.backends.cpu.codegen.target import HostDescription
from shardir.backends.cpu.codegen.tile_instructions import TileInstruction
from shardir.backends.cpu.kernel_api import BufferView, LoweringContext, Phase, row_major_strides
from shardir.backends.cpu.kernels.data_movement.copy import copy_phases
from shardir.backends.cpu.kernels.data_movement.element_cast import cast_phases
from shardir.backends.cpu.kernels.data_movement.interleave import interleave_phases
from shardir.backends.cpu.kernels.data_movement.view_transforms import slice_dim
from shardir.backends.cpu.kernels.gemm.element_arithmetic import arithmetic_of
from shardir.backends.cpu.kernels.gemm.matrix_product import (
    ImagePatches,
    MatrixProduct,
    ProductLoop,
)
from shardir.backends.cpu.kernels.gemm.tuning import (
    MIN_CONTIGUOUS_PATCH_LINES,
    MIN_GROUPED_LINES,
    MIN_PACKED_GROUP_LINES,
    MIN_PAIRED_STEPS,
    MIN_STEPS_PER_COPIED_COLUMN,
    MIN_TILE_GROUPS,
    MIN_TILE_LINES,
)
from shardir.ir.types import TensorType

GROUPED_TYPES = {"bf16": ("bf16",), "i16": ("i16",), "i8": ("i8", "i16"), "u8": ("u8", "i16")}
"""The types of the values of groups for each type of operands, which are converted to it; the
fastest first."""


class _Operand(NamedTuple):
    """An operand, and its strides in all loops of the product, the K loop with the groups last."""

    view: BufferView
    strides: tuple[int, ...]

    def has_groups(self, steps: int) -> bool:
        """Return whether the values of groups of `steps` K steps are contiguous, and groups are
        aligned."""
        *others, step = self.strides
        return step == self.view.itemsize and not any(
            number % (steps * step) for number in (self.view.offset, *others)
        )


def has_group_instruction(operand: str, result: str, machine: HostDescription) -> bool:
    """Return whether the machine has a fast instruction for groups of elements of operands of this
    type, with the sums of a result of this type."""
    return bool(_instructions(operand, result, machine))


def can_group_channels(operand: str, result: str, machine: HostDescription) -> bool:
    """Return whether such an instruction also multiplies groups of channels of patches of an
    image."""
    return _channel_instruction(operand, result, machine) is not None


def are_channels_grouped_by_packing(operand: str, result: str, machine: HostDescription) -> bool:
    """Return whether packing makes groups of channels of a filter whose features are
    contiguous."""
    return isinstance(_channel_instruction(operand, result, machine), TileInstruction)


def _channel_instruction(
    operand: str, result: str, machine: HostDescription
) -> GroupInstruction | None:
    """Return the fastest instruction for groups of channels of patches, if any."""
    found = _instructions(operand, result, machine)
    return next((each for each in found if not _needs_matrix(each)), None)


def _needs_matrix(instruction: GroupInstruction) -> bool:
    """Return whether an instruction computes 2x2 sums, which tiles that read patches in place and
    those of the NCHW layout do not have."""
    return isinstance(instruction, MatrixInstruction)


def _instructions(operand: str, result: str, machine: HostDescription) -> list[GroupInstruction]:
    """Return the fast instructions for operands of a type, the fastest first."""
    return [
        each
        for dtype in GROUPED_TYPES.get(operand, ())
        for each in GROUP_INSTRUCTIONS[dtype]
        if each.is_fast_on(machine) and each.sum == arithmetic_of(result).type
    ]


def has_grouped_steps(work: MatrixProduct) -> bool:
    """Return whether to compute a product with `group_steps`: if the innermost K loop consists of
    groups that an instruction of the machine multiplies and adds to sums of this type."""
    return _choose_instruction(work) is not None


def _choose_instruction(work: MatrixProduct) -> GroupInstruction | None:
    """Return the fastest instruction for a product."""
    inner = work.sizes[3]
    if (
        work.lhs.dtype != work.rhs.dtype
        or len(work.inner) == 0
        # Operands without elements need no copies, and have no groups.
        or inner == 0
        or 0 in work.inner[-1][1:3]
        or any(work.inner[-1].position_strides)
    ):
        return None
    usable = (
        each
        for each in _instructions(work.lhs.dtype, work.out.dtype, work.machine)
        if _is_usable(each, work)
    )
    return next(usable, None)


def _is_usable(instruction: GroupInstruction, work: MatrixProduct) -> bool:
    """Return whether the innermost K loop consists of groups of an instruction, and there are
    enough of them."""
    if isinstance(instruction, TileInstruction):
        is_large = amortizes_tiles(work, instruction)
    else:
        is_large = min(work.sizes[1:3]) >= MIN_GROUPED_LINES
    if not is_large or work.inner[-1].extent % instruction.steps:
        return False
    # Zeros around an image would have to be 128.
    return not work.patches or (
        not (instruction.is_lhs_unsigned or _needs_matrix(instruction))
        and _has_image_groups(work, work.patches, instruction)
    )


def amortizes_tiles(work: MatrixProduct, instruction: TileInstruction) -> bool:
    """Return whether a product is large enough for tile registers."""
    return (
        min(work.sizes[1:3]) >= MIN_TILE_LINES
        and work.inner[-1].extent >= MIN_TILE_GROUPS * instruction.steps
    )


def can_pack_groups(work: MatrixProduct) -> bool:
    """Return whether packing can make the pairs of K steps of patches of bf16 images, such as those
    of gradients of filters, whose K steps are not contiguous."""
    _, rows, columns, inner = work.sizes
    instruction = _channel_instruction("bf16", work.out.dtype, work.machine)
    is_tile = isinstance(instruction, TileInstruction)
    return (
        work.patches is not None
        and work.lhs.dtype == work.rhs.dtype == "bf16"
        and instruction is not None
        and inner % 2 == 0
        and min(rows, columns) >= (MIN_TILE_LINES if is_tile else MIN_PACKED_GROUP_LINES)
    )


def has_contiguous_pairs(work: MatrixProduct) -> bool:
    """Return whether packing makes pairs of steps of patches, and loads them as pairs: those of
    each run are contiguous and of an even number."""
    if not (work.packs_groups and work.patches and work.inner):
        return False
    run, image = work.inner[-1], _operand(work, work.patches.side)
    moves = run.position_strides
    return (
        image.strides[-1] == image.view.itemsize
        and set(moves) <= {0, 1}
        and sum(moves) <= 1
        and is_run_of_pairs(run)
    )


def is_run_of_pairs(loop: ProductLoop) -> bool:
    """Return whether a loop over contiguous K steps consists of pairs, and is long enough to load
    them as vectors."""
    return loop.extent % 2 == 0 and loop.extent >= MIN_PAIRED_STEPS


def pack_groups(work: MatrixProduct, context: LoweringContext) -> tuple[list[Phase], MatrixProduct]:
    """Return the product whose packed operands have groups, and the phases that copy operands.

    Patches whose lines are contiguous are the right operand if the sums are long, since its panels
    have more lines. With tile registers, all patches are, and the K steps of the left operand are
    contiguous.
    """
    phases = list[Phase]()
    instruction = _channel_instruction("bf16", work.out.dtype, work.machine)
    is_tile = isinstance(instruction, TileInstruction)
    if (is_tile or _has_long_sums_of_contiguous_lines(work)) and (
        work.patches and work.patches.side == "lhs"
    ):
        work = work.transpose()
    if isinstance(instruction, TileInstruction) and work.inner[-1].lhs != work.lhs.itemsize:
        copier = _OperandCopier(work, instruction, context)
        copied = copier.make_steps_contiguous(_operand(work, "lhs"), len(work.inner))
        phases, loops = copier.phases, iter(copied.strides)
        batch, row, column, inner = (
            tuple(loop._replace(lhs=next(loops)) for loop in each)
            for each in (work.batch, work.rows, work.columns, work.inner)
        )
        work = work._replace(lhs=copied.view, batch=batch, rows=row, columns=column, inner=inner)
    assert instruction is not None
    lhs, rhs = (
        view._replace(
            dtype=group_dtype(instruction) if _has_plain_pairs(work, side, instruction) else "i16"
        )
        for side, view in (("lhs", work.lhs), ("rhs", work.rhs))
    )
    return phases, work._replace(lhs=lhs, rhs=rhs, grouped=instruction, packs_groups=True)


def _has_long_sums_of_contiguous_lines(work: MatrixProduct) -> bool:
    """Return whether lines of patches are contiguous, and sums are so long that packing more lines
    at a time outweighs a copy of the transposed result."""
    _, _, columns, inner = work.sizes
    lines = work.rows[-1]
    return (
        lines.lhs == work.lhs.itemsize
        and lines.extent >= MIN_CONTIGUOUS_PATCH_LINES
        and inner >= MIN_STEPS_PER_COPIED_COLUMN * columns
    )


def _has_plain_pairs(work: MatrixProduct, side: str, instruction: GroupInstruction) -> bool:
    """Return whether packing copies pairs of an operand that is not patches as they are."""
    assert work.patches is not None
    return (
        side != work.patches.side
        and not isinstance(instruction, TileInstruction)
        and work.inner[-1].extent % instruction.steps == 0
        and _operand(work, side).has_groups(instruction.steps)
    )


def _has_image_groups(
    work: MatrixProduct, patches: ImagePatches, instruction: GroupInstruction
) -> bool:
    """Return whether patches have groups, or a copy of them would not repeat elements of the
    image."""
    image = _operand(work, patches.side)
    if image.view.dtype != instruction.dtype:
        return False
    extents = (loop.extent for loop in _loops(work))
    count = prod(n for n, stride in zip(extents, image.strides, strict=True) if stride)
    return image.has_groups(instruction.steps) or (not patches.starts and count <= image.view.size)


def _is_interleaved_by_packing(
    work: MatrixProduct, rhs: _Operand, instruction: TileInstruction
) -> bool:
    """Return whether packing makes the groups of a right operand of tile registers: from rows of
    contiguous columns (see `pack_rows`)."""
    return (
        not rhs.has_groups(instruction.steps)
        and len(work.columns) == 1
        and work.columns[0].rhs == rhs.view.itemsize
        and not (work.patches and work.patches.side == "rhs")
    )


def _loops(work: MatrixProduct) -> tuple[ProductLoop, ...]:
    return (*work.batch, *work.rows, *work.columns, *work.inner)


def _operand(work: MatrixProduct, side: str) -> _Operand:
    if side == "lhs":
        return _Operand(work.lhs, tuple(loop.lhs for loop in _loops(work)))
    return _Operand(work.rhs, tuple(loop.rhs for loop in _loops(work)))


def group_steps(work: MatrixProduct, context: LoweringContext) -> tuple[list[Phase], MatrixProduct]:
    """Return the phases that copy operands, and the product of groups."""
    instruction = _choose_instruction(work)
    assert instruction is not None
    groups = work.batch, work.rows, work.columns, work.inner
    loops, copier = _loops(work), _OperandCopier(work, instruction, context)
    lhs, rhs = _operand(work, "lhs"), _operand(work, "rhs")
    if isinstance(instruction, TileInstruction) and not lhs.has_groups(instruction.steps):
        lhs = copier.make_steps_contiguous(lhs)
    lhs = copier.group(lhs)
    if isinstance(instruction, TileInstruction) and _is_interleaved_by_packing(
        work, rhs, instruction
    ):
        *others, step = rhs.strides
        rhs = rhs._replace(strides=(*others, instruction.steps * step))
    else:
        rhs = copier.group(rhs)
    if instruction.is_lhs_unsigned:
        lhs = copier.make_unsigned(lhs)
    extents = copier.grouped_extents
    grouped = iter(
        loop._replace(extent=extent, lhs=left, rhs=right)
        for loop, extent, left, right in zip(loops, extents, lhs.strides, rhs.strides, strict=True)
    )
    batch, row, column, inner = (tuple(islice(grouped, len(group))) for group in groups)
    return copier.phases, work._replace(
        lhs=lhs.view, rhs=rhs.view, batch=batch, rows=row, columns=column, inner=inner,
        grouped=instruction,
    )  # fmt: skip


class _OperandCopier:
    """Makes the operands of groups; `phases` copy those that need it."""

    def __init__(
        self, work: MatrixProduct, instruction: GroupInstruction, context: LoweringContext
    ) -> None:
        self.dtype, self.steps, self.context = instruction.dtype, instruction.steps, context
        self.group_dtype = group_dtype(instruction)
        self.extents = [loop.extent for loop in _loops(work)]
        self.grouped_extents = [*self.extents[:-1], self.extents[-1] // self.steps]
        self.phases = list[Phase]()

    def group(self, operand: _Operand) -> _Operand:
        """Return the operand of groups."""
        if operand.view.dtype != self.dtype:
            operand = self._widen(operand)
        *others, step = operand.strides
        if operand.has_groups(self.steps):
            view = operand.view._replace(dtype=self.group_dtype)
            return _Operand(view, (*others, view.itemsize))
        strides = (*others, self.steps * step)
        source, target, dense = self._dense_copy(
            operand.view, self.grouped_extents, strides, (step,), operand.view.dtype
        )
        last = len(source.shape) - 1
        values = [slice_dim(source, last, i, 1) for i in range(self.steps)]
        self.phases += interleave_phases(values, target, last, self.context) or copy_phases(
            source, target, self.context
        )
        return _Operand(target._replace(dtype=self.group_dtype), dense)

    def make_steps_contiguous(self, operand: _Operand, count: int = 1) -> _Operand:
        """Return a copy of an operand in which the K steps of the `count` innermost loops are
        contiguous."""
        view = operand.view
        source, target, dense = self._dense_copy(
            view, self.extents[:-count], operand.strides[:-count], operand.strides[-count:],
            view.dtype, self.extents[-count:],
        )  # fmt: skip
        self.phases += copy_phases(source, target, self.context)
        return _Operand(target, (*dense, *target.strides[-count:]))

    def make_unsigned(self, operand: _Operand) -> _Operand:
        """Return a copy of an operand of groups in which 128 is added to each value of i8."""
        source, target, dense = self._dense_copy(
            operand.view, self.grouped_extents, operand.strides, (), self.group_dtype
        )
        self.phases += cast_phases(source, target, self.context, SIGN_BITS_OF_BYTES)
        return _Operand(target, dense)

    def _widen(self, operand: _Operand) -> _Operand:
        """Return the operand with elements of the type that instructions multiply."""
        source, target, dense = self._dense_copy(
            operand.view, self.extents, operand.strides, (), self.dtype
        )
        self.phases += cast_phases(source, target, self.context)
        return _Operand(target, dense)

    def _dense_copy(
        self,
        view: BufferView,
        extents: Sequence[int],
        strides: Sequence[int],
        group: Sequence[int],
        dtype: str,
        inner: Sequence[int] = (),
    ) -> tuple[BufferView, BufferView, tuple[int, ...]]:
        """Return the source and the target of a dense copy with the loops in the order of their
        strides, and the strides of all loops in the target. `group` is the stride of the values of
        a group, if any, or those of loops with the extents `inner`."""
        copied = sorted(
            (i for i, stride in enumerate(strides) if stride), key=lambda i: -abs(strides[i])
        )
        shape = (*(extents[i] for i in copied), *(inner or (self.steps for _ in group)))
        type = TensorType(shape, dtype)
        dense = row_major_strides(type)
        source = view._replace(shape=shape, strides=(*(strides[i] for i in copied), *group))
        target = BufferView(self.context.temporary(type.nbytes), 0, shape, dense, dtype)
        place = dict(zip(copied, dense, strict=False))
        return source, target, tuple(place.get(i, 0) for i in range(len(strides)))
