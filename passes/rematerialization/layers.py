"""Find the layers of the forward computation of a partitioned program.

Layers repeat operations: one operation of each layer has the same line, types and attributes. An
operation that occurs several times thus divides the forward computation, and the values that cross
its positions are those that one layer passes to the next. Of all operations, the one is chosen with
which the values that cross, and the values inside of the largest layer, need least memory together.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from shardir.cost.memory import Storage, used_by
from shardir.ir.module import Block, Op, Value
from shardir.passes.autodiff.phases import is_in_gradient


@dataclass(frozen=True, slots=True)
class ForwardLayers:
    """The forward computation of a block.

    `ops` are its operations, and `activations` the values of it that the gradient uses. `starts`
    are the positions in `ops` at which layers begin; the last layer ends with `ops`. `crossing` are
    the values that one layer passes to later ones.
    """

    ops: Sequence[Op]
    activations: frozenset[Value]
    starts: tuple[int, ...]
    crossing: frozenset[Value]

    @property
    def repeatable_count(self) -> int:
        """The number of layers before the last one."""
        return max(len(self.starts) - 1, 0)

    def layer_of(self, position: int) -> int:
        """Return the layer of an operation of the forward computation; -1 before all layers."""
        return bisect_right(self.starts, position) - 1


def find_layers(block: Block, storage: Storage) -> ForwardLayers:
    """Return the layers of a block; `storage` has the values that share the memory of others."""
    forward, activations = _split_phases(block, storage)
    position = {value: i for i, op in enumerate(forward) for value in op.results}
    last_use: dict[Value, int] = {}
    for i, op in enumerate(forward):
        for value in used_by(op):
            root = storage.get(value, value)
            if root in position:
                last_use[root] = i
    crossed = _crossing_bytes(forward, position, last_use)
    inside = [
        sum(value.type.nbytes for value in op.results if value in activations) for op in forward
    ]
    total = [0, *accumulate(inside)]
    best: tuple[int, ...] = ()
    least_bytes = total[-1]
    for starts in _repeated_operations(forward):
        largest = max(total[end] - total[start] for start, end in pairwise((*starts, len(forward))))
        nbytes = total[starts[0]] + largest + sum(crossed[start] for start in starts)
        if nbytes < least_bytes:
            best, least_bytes = starts, nbytes
    crossing = set()
    for value, end in last_use.items():
        following = bisect_right(best, position[value])
        if following < len(best) and best[following] <= end:
            crossing.add(value)
    return ForwardLayers(forward, activations, best, frozenset(crossing))


def _split_phases(block: Block, storage: Storage) -> tuple[list[Op], frozenset[Value]]:
    """Return the operations of the forward computation, and its values that the gradient uses."""
    forward: list[Op] = []
    in_gradient: set[Value] = set()
    computed: set[Value] = set()
    activations: set[Value] = set()
    for op in block.ops:
        uses = {storage.get(value, value) for value in used_by(op)}
        if is_in_gradient(op) or not in_gradient.isdisjoint(uses):
            in_gradient.update(op.results)
            activations |= uses & computed
        else:
            forward.append(op)
            computed.update(op.results)
    return forward, frozenset(activations)


def _crossing_bytes(
    forward: Sequence[Op], position: Mapping[Value, int], last_use: Mapping[Value, int]
) -> list[int]:
    """Return the bytes of the values that are computed before each operation of the forward
    computation, and used by it or a later one."""
    changes = [0] * (len(forward) + 1)
    for value, end in last_use.items():
        changes[position[value] + 1] += value.type.nbytes
        changes[end + 1] -= value.type.nbytes
    return list(accumulate(changes))


def _repeated_operations(forward: Sequence[Op]) -> Iterable[tuple[int, ...]]:
    """Return the positions of each operation that occurs several times."""
    found: dict[object, list[int]] = {}
    for i, op in enumerate(forward):
        types = tuple(value.type for value in (*op.operands, *op.results))
        attrs = tuple(sorted(op.attrs.items()))
        found.setdefault((op.spec, types, op.loc, attrs), []).append(i)
    return [tuple(positions) for positions in found.values() if len(positions) > 1]
