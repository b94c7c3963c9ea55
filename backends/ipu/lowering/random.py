"""Lowering rules of random bits: threefry in unsigned expressions, bit-identical to the reference.

The device's generator depends on the machine, so it is not used. An element depends on its key and
on its index among all elements of the key, which is computed here.
"""

from math import prod

from shardir.backends.ipu.codegen.device_types import ELEMENTS, initializer_text
from shardir.backends.ipu.codegen.emitter import ProgramEmitter, broadcast_view
from shardir.backends.ipu.lowering.fused_groups import index_range
from shardir.backends.ipu.lowering.indexing import cast_to_32_bits
from shardir.backends.ipu.lowering.lowering_table import lowers
from shardir.ir.dtypes import DTYPE_INFO
from shardir.ir.module import Op, Value
from shardir.ops.random.threefry import num_counters


def _key_words(e: ProgramEmitter, keys: Value, shape: tuple[int, ...]) -> tuple[str, str]:
    """Return both words of the key of each element."""
    rank = keys.type.rank
    views = []
    for word in (0, 1):
        part = f"{e.text(keys)}[{word}]"
        if rank:
            part = f"{e.text(keys)}.slice({word}, {word + 1}, {rank})"
            part = f"{part}.reshape({initializer_text(keys.type.shape)})"
        views.append(broadcast_view(part, keys.type.shape, range(rank), shape))
    return views[0], views[1]


def _indices(e: ProgramEmitter, op: Op, shape: tuple[int, ...], whole: tuple[int, ...]) -> str:
    """Return the flat index (u32) of each element among all elements of its key."""
    keys, *starts = op.operands
    piece = shape[keys.type.rank :]
    if prod(whole) > 2**32:
        raise e.refusal_error(
            op,
            f"draws {prod(whole)} elements from one key, and indices on IPUs are below 4294967296",
            "split the key, and draw a part with each",
        )
    label = e.label(op.results[0])
    terms: list[str] = []
    places: list[str] = []
    for dim, size in enumerate(piece):
        stride = prod(whole[dim + 1 :])
        place = ""
        if size > 1:
            line = index_range(e, size, "u32")
            places.append(broadcast_view(line, (size,), (keys.type.rank + dim,), shape))
            place = f"pe::_{len(places)}"
        if starts and size != whole[dim]:
            text, dtype = cast_to_32_bits(e, starts[dim])
            if dtype != "u32":
                inside = "pe::Cast(pe::Max(pe::_1, pe::Const(0)), poplar::UNSIGNED_INT)"
                text = e.temporary(f"{starts[dim].name}_u", e.map_text(inside, [text], label))
            places.append(broadcast_view(text, (), (), shape))
            place = f"({place} + pe::_{len(places)})" if place else f"pe::_{len(places)}"
        if place:
            terms.append(place if stride == 1 else f"{place} * pe::Const({stride}u)")
    name = f"{op.results[0].name}_index"
    if not terms:
        return e.temporary(name, broadcast_view(e.constant(0, "u32"), (), (), shape))
    if terms == ["pe::_1"]:
        return places[0]
    return e.temporary(name, e.map_text(" + ".join(terms), places, label))


def _hash(e: ProgramEmitter, op: Op, key: tuple[str, str], first: str, second: str) -> str:
    """Return both words of the hashes, along a new first dimension."""
    arguments = f"{key[0]}, {key[1]}, {first}, {second}, {e.sequence}, {e.label(op.results[0])}"
    return e.temporary(
        f"{op.results[0].name}_hash", f"{e.use_helper('threefry')}(graph, {arguments})"
    )


def _zero(e: ProgramEmitter, shape: tuple[int, ...]) -> str:
    zero = e.constant(0, "u32")
    return broadcast_view(zero, (), (), shape)


def _original_scheme_words(
    e: ProgramEmitter, op: Op, key: tuple[str, str], words: str, count: int
) -> str:
    """Return the 32-bit words at indices `words` of the `count` words of the original scheme."""
    half = (count + 1) // 2
    label = e.label(op.results[0])
    first = e.temporary("word", e.map_text(f"pe::_1 % pe::Const({half}u)", [words], label))
    sum_ = f"pe::_1 + pe::Const({half}u)"
    both = f"pe::Select({sum_}, pe::Const(0u), {sum_} < pe::Const({count}u))"
    second = e.map_text(both, [first], label)
    outs = _hash(e, op, key, first, second)
    chosen = f"pe::Select(pe::_1, pe::_2, pe::_3 < pe::Const({half}u))"
    return e.map_text(chosen, [f"{outs}[0]", f"{outs}[1]", words], label)


@lowers("random_bits", "random_bits_at")
def _bits(e: ProgramEmitter, op: Op) -> None:
    e.comment(op)
    keys, y = op.operands[0], op.result
    shape, dtype = y.type.shape, y.type.dtype
    whole = op.attrs.get("shape", shape[keys.type.rank :])
    width, label = DTYPE_INFO[dtype].bits, e.label(y)
    indices = _indices(e, op, shape, whole)
    key = _key_words(e, keys, shape)
    if op.attrs.get("scheme", "partitionable") == "partitionable":
        outs = _hash(e, op, key, _zero(e, shape), indices)
        made = e.map_text("pe::_1 ^ pe::_2", [f"{outs}[0]", f"{outs}[1]"], label)
    else:
        count, share = num_counters(prod(whole), width), 32 // width
        words = indices
        if share > 1:
            word = e.map_text(f"pe::_1 / pe::Const({share}u)", [indices], label)
            words = e.temporary(f"{y.name}_word", word)
        made = _original_scheme_words(e, op, key, words, count)
        if share > 1:
            shift = f"pe::_1 >> pe::_2 % pe::Const({share}u) * pe::Const({width}u)"
            made = e.map_text(shift, [made, indices], label)
    if width < 32:
        to = ELEMENTS[dtype].poplar
        low = f"pe::Cast(pe::_1 & pe::Const({(1 << width) - 1}u), poplar::INT)"
        made = e.map_text(f"pe::Cast({low}, {to})", [made], label)
    e.define(y, made)


@lowers("random_split", "random_split_at")
def _split(e: ProgramEmitter, op: Op) -> None:
    e.comment(op)
    keys, y = op.operands[0], op.result
    shape = y.type.shape
    whole = op.attrs.get("shape", shape[keys.type.rank :])
    indices = _indices(e, op, shape, whole)
    key, label = _key_words(e, keys, shape), e.label(y)
    if op.attrs.get("scheme", "partitionable") == "partitionable":
        outs = _hash(e, op, key, _zero(e, shape), indices)
        e.define(y, _words_to_last(outs, shape))
        return
    count = 2 * prod(whole)
    pieces = []
    for low in ("", " + pe::Const(1u)"):
        words = e.temporary("word", e.map_text(f"pe::_1 * pe::Const(2u){low}", [indices], label))
        pieces.append(
            f"{_original_scheme_words(e, op, key, words, count)}"
            f".reshape({initializer_text((*shape, 1))})"
        )
    e.define(y, f"poplar::concat({{{', '.join(pieces)}}}, {len(shape)})")


def _words_to_last(outs: str, shape: tuple[int, ...]) -> str:
    """Move the words of keys from the first to the last dimension."""
    order = [*range(1, len(shape) + 1), 0]
    return f"{outs}.dimShuffle({initializer_text(order)})" if shape else outs


@lowers("random_fold_in")
def _fold_in(e: ProgramEmitter, op: Op) -> None:
    e.comment(op)
    keys, data = op.operands
    shape = op.result.type.shape
    outs = _hash(e, op, _key_words(e, keys, shape), _zero(e, shape), e.text(data))
    e.define(op.result, _words_to_last(outs, shape))


@lowers("random_hash")
def _hash_pairs(e: ProgramEmitter, op: Op) -> None:
    e.comment(op)
    keys, first, second = op.operands
    shape = op.result.type.shape
    outs = _hash(e, op, _key_words(e, keys, shape), e.text(first), e.text(second))
    e.define(op.result, _words_to_last(outs, shape))
