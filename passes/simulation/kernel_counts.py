"""The work of the kernel of an operation: bytes, elements by operation, and flops of products.

A fused kernel makes a pass over its elements for each reduction that depends on another one, as a
softmax does: a pass computes what its reductions and results need. It computes the values of
earlier passes again, except those of operations with a measured time, which it stores and loads.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from math import inf

from shardir import ops
from shardir.cost.op_cost import cost_of_block, flops_of
from shardir.ir.module import Block, Op, Value
from shardir.machine.kernel_time import KernelCounts, PassCounts, SizedOperation
from shardir.ops.control_flow.fused import REDUCTIONS, fused
from shardir.passes.simulation.visible_scores import visible_fraction

READ_PARTLY = frozenset({ops.slice_, ops.dynamic_slice, ops.gather, ops.all_slice})
"""Operations that read only the elements of the first operand that they return."""
WRITE_PARTLY = frozenset({ops.scatter, ops.dynamic_update_slice})
"""Operations that change some elements of the first operand, in place."""
MIN_COPIED_BYTES = 64
"""The contiguous bytes, a cache line, from which a transpose moves data as fast as a copy does."""

IsMeasured = Callable[[str, str], bool]
"""Returns whether the time of an operation on a dtype was measured."""


def sized_operation(op: Op, is_measured: IsMeasured) -> SizedOperation | None:
    """Return the operation of a kernel whose measured time includes its traffic, if it was
    measured: any but elementwise operations and the reductions that kernels fuse."""
    if op.spec.elementwise or op.spec in REDUCTIONS or not op.operands:
        return None
    if op.spec is ops.transpose and _contiguous_bytes(op) >= MIN_COPIED_BYTES:
        return None
    operand = op.operands[0].type
    if not is_measured(op.name, operand.dtype):
        return None
    elements = operand.size
    size = operand.shape[op.attrs["dim"]] if op.spec is ops.sort else elements
    return SizedOperation(op.name, operand.dtype, elements * len(op.operands), size)


def count_kernel(op: Op, is_measured: IsMeasured, masked_edge: float | None) -> KernelCounts:
    """Return the work of the kernel of an operation.

    `masked_edge` are the columns that attention kernels compute in each row in addition to the
    visible ones; `None` if they compute all masked scores.
    """
    read, written = _traffic(op)
    if op.spec in (ops.dot, ops.convolution):
        return KernelCounts(read, written, products=((op.operands[0].type.dtype, flops_of(op)),))
    if op.spec is ops.fused_products:
        block = op.blocks[0]
        visible = 1.0 if masked_edge is None else visible_fraction(block, masked_edge)
        passes, _ = _count_passes(block, is_measured)
        products = [each for each in block.ops if each.spec is ops.dot]
        return KernelCounts(
            read,
            written,
            tuple(_scale(each, visible) for each in passes),
            products=tuple(
                (each.operands[0].type.dtype, flops_of(each) * visible) for each in products
            ),
        )
    if op.spec is fused:
        passes, group_bytes = _count_passes(op.blocks[0], is_measured)
        return KernelCounts(read, written, passes, group_bytes)
    flops = sum(cost_of_block(block).flops for block in op.blocks) if op.blocks else flops_of(op)
    moved = read + written if op.spec.elementwise or op.spec in REDUCTIONS else 0
    return KernelCounts(read, written, (PassCounts(moved, {_key(op): flops} if flops else {}),))


def _traffic(op: Op) -> tuple[int, int]:
    """Return the bytes that a kernel reads from memory, and those that it writes."""
    if op.spec in READ_PARTLY:
        indices = sum(value.type.nbytes for value in op.operands[1:])
        return op.result.type.nbytes + indices, op.result.type.nbytes
    if op.spec in WRITE_PARTLY:
        updates = sum(value.type.nbytes for value in op.operands[1:])
        return updates, updates
    return (
        sum(value.type.nbytes for value in dict.fromkeys(op.operands)),
        sum(value.type.nbytes for value in op.results),
    )


def _contiguous_bytes(op: Op) -> float:
    """Return the bytes of the elements that a transpose leaves next to each other."""
    operand, kept = op.operands[0].type, 1
    for dim in reversed(range(len(operand.shape))):
        if op.attrs["perm"][dim] != dim:
            return kept * operand.nbytes / operand.size if operand.size else inf
        kept *= operand.shape[dim]
    return inf


def _count_passes(block: Block, is_measured: IsMeasured) -> tuple[tuple[PassCounts, ...], float]:
    """Return the passes of a loop nest, and the bytes of the elements between which they begin
    again."""
    counter = _PassCounter(block, is_measured)
    return counter.count(), counter.group_bytes()


class _PassCounter:
    """Counts what each pass of a loop nest loads, computes and stores."""

    def __init__(self, block: Block, is_measured: IsMeasured) -> None:
        self.block, self.is_measured = block, is_measured
        self.definitions = {result: op for op in block.ops for result in op.results}
        self.stages: dict[Value, int] = dict.fromkeys(block.params, 0)
        """The first pass in which each value is available."""
        for op in block.ops:
            stage = max((self.stages[operand] for operand in op.operands), default=0)
            self.stages |= dict.fromkeys(op.results, stage + (op.spec in REDUCTIONS))
        self.stored: set[Value] = set()

    def count(self) -> tuple[PassCounts, ...]:
        ends = [op for op in self.block.ops if op.spec in REDUCTIONS or self._multiplies(op)]
        targets: dict[int, list[Value]] = {}
        transferred: dict[int, float] = {}
        elements: dict[int, dict[tuple[str, str], float]] = {}
        for op in ends:
            (value,) = (x for x in op.operands if op.spec in REDUCTIONS or self._is_score(x))
            number = self.stages[value]
            targets.setdefault(number, []).append(value)
            if op.spec in REDUCTIONS:
                _add(elements.setdefault(number, {}), op)
            else:
                transferred[number] = transferred.get(number, 0) + value.type.nbytes
        for value in dict.fromkeys(self.block.returns):
            if not self._is_product(value):
                number = self.stages[value]
                targets.setdefault(number, []).append(value)
                transferred[number] = transferred.get(number, 0) + value.type.nbytes
        for number in sorted(targets):
            loaded = self._compute(targets[number], number, elements.setdefault(number, {}))
            transferred[number] = transferred.get(number, 0) + loaded
        for value in self.stored:
            transferred[self.stages[value]] += value.type.nbytes
        return tuple(
            PassCounts(transferred.get(number, 0), elements[number]) for number in sorted(targets)
        )

    def group_bytes(self) -> float:
        """Return the bytes of the parameters and results between two results of a reduction; 0
        without a reduction."""
        reductions = [op for op in self.block.ops if op.spec in REDUCTIONS]
        if not reductions:
            return 0.0
        whole, part = (reductions[0].operands[0].type.size, reductions[0].result.type.size)
        full = [v for v in (*self.block.params, *self.block.returns) if v.type.size == whole]
        return sum(value.type.nbytes for value in full) / max(part, 1)

    def _compute(
        self, targets: Iterable[Value], number: int, elements: dict[tuple[str, str], float]
    ) -> float:
        """Count the operations that values need in a pass; return the bytes that it loads."""
        loaded, seen, pending = 0.0, set[Value](), list(targets)
        while pending:
            value = pending.pop()
            if value in seen:
                continue
            seen.add(value)
            op = self.definitions.get(value)
            if op is None or op.spec is ops.dot:
                loaded += value.type.nbytes
            elif op.spec in REDUCTIONS:
                continue
            elif self.stages[value] < number and self.is_measured(*_key(op)):
                self.stored.add(value)
                loaded += value.type.nbytes
            else:
                _add(elements, op)
                pending += op.operands
        return loaded

    def _is_product(self, value: Value) -> bool:
        return value in self.definitions and self.definitions[value].spec is ops.dot

    def _multiplies(self, op: Op) -> bool:
        """Return whether a product multiplies values that the nest computes."""
        return op.spec is ops.dot and any(map(self._is_score, op.operands))

    def _is_score(self, value: Value) -> bool:
        return value in self.definitions and self.definitions[value].spec is not ops.convert


def _add(elements: dict[tuple[str, str], float], op: Op) -> None:
    """Add the elements of an operation that computes."""
    flops = flops_of(op)
    if flops:
        elements[_key(op)] = elements.get(_key(op), 0) + flops


def _key(op: Op) -> tuple[str, str]:
    operands = op.operands if op.spec in REDUCTIONS else op.results
    return op.name, operands[0].type.dtype


def _scale(counts: PassCounts, factor: float) -> PassCounts:
    elements = {key: n * factor for key, n in counts.elements.items()}
    return replace(counts, transferred=counts.transferred * factor, elements=elements)
