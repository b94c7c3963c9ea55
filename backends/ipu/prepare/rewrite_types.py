"""Rewrite programs before emission to avoid types that IPUs lack.

Conversions to f64 are moved behind data movement and into the groups that use them, so that
products and sums with one rounding are recognized (`multiply_add`). The absolute value of a complex
number is computed from its parts (`hypot`). Bitcasts between words and bytes become shifts, because
Poplar reinterprets only elements of equal width.
"""

from collections import Counter
from dataclasses import replace

from shardir import ops as specs
from shardir.backends.emission import Emission
from shardir.ir.builder import Builder, UniqueNames
from shardir.ir.module import Block, Function, Op, Value
from shardir.ir.operation import OPS

_DATA_MOVEMENT = (
    specs.broadcast,
    specs.reshape,
    specs.transpose,
    specs.slice_,
    specs.reverse,
    specs.roll,
)


def rewrite_types(emission: Emission) -> Emission:
    """Return an equivalent program with fewer values of types that IPUs lack."""
    first, *rest = emission.module.functions
    module = replace(emission.module, functions=(_function(first), *rest))
    return replace(emission, module=module)


def _function(function: Function) -> Function:
    taken = [value.name for op in function.body.walk() for value in op.results]
    taken += [value.name for block in _blocks(function.body) for value in block.params]
    body = _Rewriter(UniqueNames(taken)).block(function.body)
    return replace(function, body=_without_unused(body))


class _Rewriter:
    """Rewrites blocks in order, and records the operation that defines each value."""

    def __init__(self, names: UniqueNames) -> None:
        self.names = names
        self.made: dict[Value, Op] = {}

    def block(self, block: Block) -> Block:
        """Return the block with its operations and inner blocks rewritten."""
        b = Builder(self.names)
        for op in block.ops:
            start = len(b.ops)
            self._write(b, op)
            for written in b.ops[start:]:
                self.made.update(dict.fromkeys(written.results, written))
        return replace(block, ops=tuple(b.ops))

    def _write(self, b: Builder, op: Op) -> None:
        source = self.made.get(op.operands[0]) if len(op.operands) == 1 else None
        b.loc = op.loc
        if op.spec is specs.fused:
            self._write_group(b, op)
        elif op.blocks:
            b.append(replace(op, blocks=tuple(map(self.block, op.blocks))))
        elif source is not None and op.spec in _DATA_MOVEMENT and _widens(source):
            single = self._single(op.result)
            b.append(replace(op, operands=source.operands, results=(single,)))
            b.append(replace(source, operands=(single,), results=op.results))
        elif source is not None and op.spec is specs.abs_ and source.spec is specs.complex_:
            if op.result.type.dtype != "f32":
                b.append(op)
                return
            _write_magnitude(b, op, *source.operands)
        elif op.spec is specs.bitcast and _are_words(op):
            _write_bitcast(b, op)
        else:
            b.append(op)

    def _single(self, double: Value) -> Value:
        return replace(double, name=self.names.fresh(), type=double.type.with_dtype("f32"))

    def _write_group(self, b: Builder, op: Op) -> None:
        """Write a group that takes and returns f32 values, and converts them inside."""
        (block,) = op.blocks
        operands, params, conversions = list(op.operands), list(block.params), []
        for i, (operand, param) in enumerate(zip(op.operands, block.params, strict=True)):
            source = self.made.get(operand)
            if source is not None and _widens(source):
                operands[i], params[i] = source.operands[0], self._single(param)
                conversions.append(replace(source, operands=(params[i],), results=(param,)))
        block = self.block(Block(tuple(params), (*conversions, *block.ops), block.returns))
        results, returns, after = list(op.results), list(block.returns), []
        for i, (inside, result) in enumerate(zip(block.returns, op.results, strict=True)):
            source = self.made.get(inside)
            if source is not None and _widens(source):
                results[i], returns[i] = self._single(result), source.operands[0]
                after.append(replace(source, operands=(results[i],), results=(result,)))
        block = replace(block, returns=tuple(returns))
        changed = replace(op, operands=tuple(operands), results=tuple(results), blocks=(block,))
        for written in (changed, *after):
            b.append(written)


def _widens(op: Op) -> bool:
    if op.spec is not specs.convert:
        return False
    return (op.operands[0].type.dtype, op.result.type.dtype) == ("f32", "f64")


def _write_magnitude(b: Builder, op: Op, x: Value, y: Value) -> None:
    """Write sqrt(x * x + y * y) without squares that overflow or underflow."""
    type = op.result.type
    infinite = b.full(float("inf"), type)
    x, y = b.abs(x), b.abs(y)
    larger, smaller = b.maximum(x, y), b.minimum(x, y)
    ratio = b.div(smaller, larger)
    length = b.mul(larger, b.sqrt(b.add(b.full(1.0, type), b.mul(ratio, ratio))))
    length = b.select(b.eq(larger, b.full(0.0, type)), larger, length)
    either = getattr(b, "or")(b.eq(x, infinite), b.eq(y, infinite))
    operands = (either, infinite, length)
    b.append(replace(op, spec=OPS["select"], operands=operands, attrs={}))


def _are_words(op: Op) -> bool:
    """Return whether the operation bitcasts unsigned integers to another width."""
    x, y = op.operands[0].type, op.result.type
    return x.rank != y.rank and {x.dtype, y.dtype} <= {"u8", "u16", "u32"}


def _write_bitcast(b: Builder, op: Op) -> None:
    """Write shifts and masks that split words into parts, or join parts to words."""
    (x,), y = op.operands, op.result
    narrow = max((x.type, y.type), key=lambda type: type.rank)
    width, word = narrow.numpy.itemsize * 8, narrow.with_dtype("u32")
    if x.type.rank < y.type.rank:
        whole = b.convert(x, result=x.type.with_dtype("u32"))
        spread = b.broadcast(whole, dims=tuple(range(x.type.rank)), result=word)
        places = b.mul(b.iota(dim=word.rank - 1, result=word), b.full(width, word))
        parts = b.shift_right_logical(spread, places)
        made = getattr(b, "and")(parts, b.full((1 << width) - 1, word))
    else:
        whole = b.convert(x, result=word)
        places = b.mul(b.iota(dim=word.rank - 1, result=word), b.full(width, word))
        made = b.sum(b.shift_left(whole, places), dims=(word.rank - 1,))
    b.append(replace(op, spec=OPS["convert"], operands=(made,), attrs={}))


def _without_unused(body: Block) -> Block:
    """Return the block without unused conversions and complex numbers."""
    uses = Counter(value for op in body.walk() for value in op.operands)
    uses.update(value for block in _blocks(body) for value in block.returns)

    def remove_unused(block: Block) -> Block:
        ops = [
            replace(op, blocks=tuple(map(remove_unused, op.blocks))) if op.blocks else op
            for op in block.ops
            if op.spec not in (specs.convert, specs.complex_) or uses[op.result]
        ]
        return replace(block, ops=tuple(ops))

    return remove_unused(body)


def _blocks(block: Block) -> list[Block]:
    return [block, *(inner for op in block.walk() for inner in op.blocks)]
