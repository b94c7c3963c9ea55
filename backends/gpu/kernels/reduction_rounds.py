"""Group reductions into rounds: those that do not depend on each other share one loop."""

from collections.abc import Iterator, Sequence

from shardir.backends.gpu.kernels.group_layout import GroupLayout
from shardir.backends.gpu.kernels.kernel_writer import KernelWriter
from shardir.ir.module import Block, Op, Value


class ReductionRounds:
    """The depth of each value: the number of dependent reductions before it."""

    def __init__(self, writer: KernelWriter) -> None:
        self.layout: GroupLayout = writer.layout
        self.block: Block = writer.block
        self.depths: dict[Value, int] = dict.fromkeys(writer.block.params, 0)
        self.reductions: list[Op] = []
        for op in writer.block.ops:
            depth = max((self.depths[value] for value in op.operands), default=0)
            self.depths[op.result] = depth
            if op.result in self.layout.axes_of and writer.is_nontrivial_reduction(op):
                self.reductions.append(op)
                self.depths[op.result] = depth + 1

    @property
    def is_single_round(self) -> bool:
        """Return whether no reduction, and no yielded element, depends on another reduction."""
        walked = [value for value in self.block.returns if self.has_reduced_axes(value)]
        starts = [op.operands[0] for op in self.reductions]
        return not any(self.depths[value] for value in (*starts, *walked))

    def has_reduced_axes(self, value: Value) -> bool:
        """Return whether a value has reduced axes, so that loops compute it."""
        return not self.layout.reduced.isdisjoint(self.layout.axes_of[value])

    def iterate(self) -> Iterator[tuple[Sequence[Op], Sequence[Value]]]:
        """Yield for each round its reductions, and the yielded values that have reduced axes."""
        walked = [value for value in self.block.returns if self.has_reduced_axes(value)]
        starts = [self.depths[op.operands[0]] for op in self.reductions]
        for depth in range(max([*starts, *(self.depths[value] for value in walked)]) + 1):
            yield (
                [op for op, at in zip(self.reductions, starts, strict=True) if at == depth],
                [value for value in walked if self.depths[value] == depth],
            )
