"""Calls of a program in StableHLO text, as a part of a traced program."""

from shardir.errors import ShardirError
from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.dispatch.eager import public
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import as_tracer
from shardir.frontend.tracing.trace import append_block, emit, wrap_value
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.dtypes import KEY_WORDS, KEYS, RBG_KEYS
from shardir.ir.module import Block
from shardir.ir.types import TensorType
from shardir.passes.simplify.inline_calls import inline_calls
from shardir.stablehlo.reader import read


class ExportedProgramError(ShardirError, ValueError):
    """A program that cannot be exported, or bytes that are not an exported program."""


@public(static=("text", "dtypes"), name="exported")
def call_program(text: str, dtypes: tuple[str, ...], *arrays: ArrayLike) -> list[Tracer]:
    """Return the results, of the element types `dtypes`, of a program in StableHLO text."""
    module = inline_calls(read(text))
    if module.meshes:
        raise ExportedProgramError(
            with_location(
                "a deserialized program with shardings cannot be called; run its text, "
                "mlir_module(), with `shardir run`"
            )
        )
    body = module.main.body
    stored = [_store_keys(as_tracer(x)) for x in arrays]
    values = append_block(body, stored, Block((), (), ()))
    return [
        _load_keys(wrap_value(value), dtype) for value, dtype in zip(values, dtypes, strict=True)
    ]


def _store_keys(x: Tracer) -> Tracer:
    """Return random keys as StableHLO text has them: one word of 64 bits, or four of 32 bits."""
    type = x.value.type
    if type.dtype not in KEYS:
        return x
    words: Tracer = emit(
        "bitcast", x, result=TensorType((*type.shape, KEY_WORDS[type.dtype]), "u32")
    )
    if type.dtype in RBG_KEYS:
        return words
    # The first word is the high half.
    swapped = emit("reverse", words, dims=(type.rank,))
    signed = emit("bitcast", swapped, result=type.with_dtype("i64"))
    stored: Tracer = emit("bitcast", signed, result=type.with_dtype("u64"))
    return stored


def _load_keys(x: Tracer, dtype: str) -> Tracer:
    """Return an array that `_store_keys` made as keys; other arrays are unchanged."""
    if dtype not in KEYS:
        return x
    words, rank = x, x.ndim - 1
    if dtype not in RBG_KEYS:
        rank = x.ndim
        signed = emit("bitcast", x, result=x.value.type.with_dtype("i64"))
        split = emit("bitcast", signed, result=TensorType((*x.shape, KEY_WORDS[dtype]), "u32"))
        words = emit("reverse", split, dims=(rank,))
    keys: Tracer = emit("bitcast", words, result=TensorType(words.shape[:rank], dtype))
    return keys
