"""The state of lowering a function, and the interface for lowering a nested block."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from shardir.backends.cpu.kernel_api import BufferView, Order, row_major_strides
from shardir.backends.cpu.schedule.arena import BufferKind, PlannedBuffer
from shardir.backends.cpu.schedule.items import Item
from shardir.ir.module import Block, Value


class LoweringState(ABC):
    """The state of lowering: views of values, buffers, and the position in the program."""

    def __init__(self, orders: Mapping[str, Order]) -> None:
        self.orders = orders
        self.buffers: list[PlannedBuffer] = []
        self.constants: list[npt.NDArray[np.generic]] = []
        self.views: dict[Value, BufferView] = {}
        self.targets: dict[Value, BufferView] = {}
        self.rows: dict[int, BufferView] = {}
        self.in_place_pairs: list[tuple[int, PlannedBuffer, PlannedBuffer]] = []
        self.position = 0

    def buffer(
        self,
        value: Value,
        kind: BufferKind = BufferKind.ARENA,
        strides: tuple[int, ...] | None = None,
        number: int = 0,
        pinned: bool = False,
    ) -> BufferView:
        """Add a buffer for a value and return the view of all of it."""
        self.buffers.append(
            PlannedBuffer(kind, value.type.nbytes, number, value.name, pinned=pinned)
        )
        byte_strides = row_major_strides(value.type) if strides is None else strides
        return BufferView(
            len(self.buffers) - 1, 0, value.type.shape, byte_strides, value.type.dtype
        )

    def mark_used(self, *views: BufferView) -> None:
        """Mark the memory of the views as live at the current position."""
        for view in views:
            self.buffers[view.slot].extend_live_range(self.position)
            if view.slot in self.rows:
                self.mark_used(self.rows[view.slot])

    def extend_live_ranges(self, start: int) -> None:
        """Extend buffers that are older than `start` and used since then: a loop ends here."""
        for buffer in self.buffers:
            if buffer.first < start <= buffer.last:
                buffer.extend_live_range(self.position)

    @abstractmethod
    def block(
        self, block: Block, targets: Sequence[BufferView], owned: bool = False
    ) -> tuple[list[Item], list[BufferView]]:
        """Lower a block; return its items and the views of its results, which are `targets`.

        `owned` results may instead be all of an argument, or the memory of another result.
        """
