"""An einsum of two strided operands as the loop nest of a matrix product."""

from collections.abc import Iterable
from math import prod
from typing import NamedTuple

from shardir.backends.cpu.codegen.dot_product_instructions import GroupInstruction
from shardir.backends.cpu.codegen.target import HostDescription
from shardir.backends.cpu.kernel_api import BufferView
from shardir.backends.cpu.kernels.gemm.element_arithmetic import Arithmetic, arithmetic_of


class ProductLoop(NamedTuple):
    """A loop of a product: its extent and the stride in bytes in each operand.

    `steps` are its strides along each checked dimension of an image.
    """

    extent: int
    lhs: int
    rhs: int
    out: int
    position_strides: tuple[int, ...] = ()


class ImagePatches(NamedTuple):
    """The bounds of an operand ("lhs" or "rhs") that consists of patches of an image.

    Along checked dimension d, positions begin at `starts[d]`. Elements at positions in `[0,
    sizes[d])` exist; all others are zero. If no dimension is checked, all elements exist.
    """

    side: str
    starts: tuple[int, ...]
    sizes: tuple[int, ...]


class MatrixProduct(NamedTuple):
    """out[batch, row, column] = sum over inner of lhs[batch, row, inner] * rhs[..., column].

    Each index is any number of loops, the outermost first. The order of `inner` is the summation
    order. `machine` describes the host that the kernels are selected for. If `grouped` is set,
    elements of operands hold the groups of K steps of this instruction (see `grouped_steps`); with
    `packs_groups`, packing makes these groups.
    """

    lhs: BufferView
    rhs: BufferView
    out: BufferView
    batch: tuple[ProductLoop, ...]
    rows: tuple[ProductLoop, ...]
    columns: tuple[ProductLoop, ...]
    inner: tuple[ProductLoop, ...]
    machine: HostDescription
    patches: ImagePatches | None = None
    grouped: GroupInstruction | None = None
    packs_groups: bool = False

    @property
    def arithmetic(self) -> Arithmetic:
        """The arithmetic of the sums."""
        return arithmetic_of(self.out.dtype)._replace(
            grouped=self.grouped, packs_groups=self.packs_groups
        )

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """The number of products, rows, columns and K steps."""
        loops = self.batch, self.rows, self.columns, self.inner
        batch, rows, columns, inner = (prod(loop.extent for loop in each) for each in loops)
        return batch, rows, columns, inner

    def transpose(self) -> "MatrixProduct":
        """Return the transposed product: the operands, and rows and columns, are swapped."""
        flip = [
            tuple(x._replace(lhs=x.rhs, rhs=x.lhs) for x in loops)
            for loops in (self.batch, self.columns, self.rows, self.inner)
        ]
        patches = self.patches
        if patches:
            patches = patches._replace(side="rhs" if patches.side == "lhs" else "lhs")
        return self._replace(
            lhs=self.rhs, rhs=self.lhs, batch=flip[0], rows=flip[1], columns=flip[2],
            inner=flip[3], patches=patches,
        )  # fmt: skip


def matrix_product_of(
    dims: str, lhs: BufferView, rhs: BufferView, out: BufferView, machine: HostDescription
) -> MatrixProduct:
    """Return the loops of the einsum `dims`; adjacent loops of a kind are merged where possible.

    A letter that only one operand has and the result lacks is summed over with the others; its
    stride in the other operand is 0.
    """
    operands, _, output = dims.partition("->")
    left, right = operands.split(",")
    sizes = {
        **dict(zip(left, lhs.shape, strict=True)),
        **dict(zip(right, rhs.shape, strict=True)),
    }
    steps = [
        dict(zip(term, view.strides, strict=True))
        for term, view in ((left, lhs), (right, rhs), (output, out))
    ]
    loops = {
        letter: ProductLoop(size, *_unpack_strides(step.get(letter, 0) for step in steps))
        for letter, size in sizes.items()
    }
    both = [c for c in output if c in left and c in right]
    return MatrixProduct(
        lhs,
        rhs,
        out,
        merge_loops(sorted((loops[c] for c in both), key=lambda x: -abs(x.out))),
        merge_loops(_by_operand(loops[c] for c in output if c not in right)),
        merge_loops(sorted((loops[c] for c in output if c not in left), key=lambda x: -abs(x.out))),
        merge_loops(_by_both(loops[c] for c in sizes if c not in output)),
        machine,
    )


def _by_operand(loops: Iterable[ProductLoop]) -> list[ProductLoop]:
    return sorted(loops, key=lambda loop: (-abs(loop.lhs), -abs(loop.out)))


def _by_both(loops: Iterable[ProductLoop]) -> list[ProductLoop]:
    return sorted(loops, key=lambda loop: -abs(loop.lhs) - abs(loop.rhs))


def merge_loops(loops: Iterable[ProductLoop]) -> tuple[ProductLoop, ...]:
    """Drop loops of extent 1, and merge an outer loop that continues an inner one with it."""
    out: list[ProductLoop] = []
    for loop in loops:
        if loop.extent == 1:
            continue
        if out and all(
            outer == inner * loop.extent
            for outer, inner in zip(_loop_strides(out[-1]), _loop_strides(loop), strict=True)
        ):
            outer = out.pop()
            loop = loop._replace(extent=outer.extent * loop.extent)
        out.append(loop)
    return tuple(out)


def _unpack_strides(strides: Iterable[int]) -> tuple[int, int, int]:
    lhs, rhs, out = strides
    return lhs, rhs, out


def _loop_strides(loop: ProductLoop) -> tuple[int, ...]:
    return (*loop[1:4], *loop.position_strides)
