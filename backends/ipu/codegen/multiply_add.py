"""Find products and sums a * b + c that are computed in f64 and rounded once to f32.

Random numbers are scaled this way. IPUs have no double precision, but the rounding errors of an f32
product and of an f32 sum are f32 numbers themselves (T. J. Dekker, "A floating-point technique for
extending the available precision", 1971), and are added at the end.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from shardir import ops
from shardir.ir.module import Block, Op, Value


@dataclass
class MultiplyAdds:
    """The f32 operands of each such sum, and the f64 intermediates."""

    operands: dict[Value, tuple[Value, Value, Value]] = field(default_factory=dict)
    between: set[Value] = field(default_factory=set)


def find_multiply_adds(block: Block) -> MultiplyAdds:
    """Find those of a block and its inner blocks whose f64 intermediates have no other use."""
    made = {value: op for op in block.walk() for value in op.results}
    uses: dict[Value, set[Op | None]] = {}
    for inner in _blocks(block):
        for op in inner.ops:
            for value in op.operands:
                uses.setdefault(value, set()).add(op)
        for value in inner.returns:
            uses.setdefault(value, set()).add(None)
    sums = {op: matched for op in block.walk() if (matched := _match_multiply_add(op, made))}
    while True:
        taken = {part for op, (_, parts) in sums.items() for part in (op, *parts)}
        doubles = [op.result for op in taken if op.result.type.dtype == "f64"]
        loose = {value for value in doubles if not uses.get(value, set()) <= taken}
        if not loose:
            operands = {op.result: matched[0] for op, matched in sums.items()}
            return MultiplyAdds(operands, set(doubles))
        sums = {
            op: (operands, parts)
            for op, (operands, parts) in sums.items()
            if not any(part.result in loose for part in parts)
        }


def _blocks(block: Block) -> Iterator[Block]:
    yield block
    for op in block.walk():
        yield from op.blocks


def _match_multiply_add(
    op: Op, made: dict[Value, Op]
) -> tuple[tuple[Value, Value, Value], tuple[Op, ...]] | None:
    """Return the operands of a rounded sum, and the f64 operations that compute it, or `None`."""
    if op.spec is not ops.convert or op.result.type.dtype != "f32":
        return None
    total = made.get(op.operands[0])
    if total is None or total.spec is not ops.add or total.result.type.dtype != "f64":
        return None
    for product, term in (total.operands, total.operands[::-1]):
        times = made.get(product)
        if times is None or times.spec is not ops.mul:
            continue
        widened = [made.get(value) for value in (*times.operands, term)]
        parts = [w for w in widened if w is not None and _widens(w)]
        if len(parts) == 3:
            a, b, c = (w.operands[0] for w in parts)
            return (a, b, c), (total, times, *parts)
    return None


def _widens(op: Op) -> bool:
    return op.spec is ops.convert and op.operands[0].type.dtype == "f32"
