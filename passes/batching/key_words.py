"""Replace keys of four words (`rbg`, `unsafe_rbg`) by their words, for targets without such keys.

before: `%some = slice(%keys, starts=[0], strides=[2]) : key_rbg[2]`
after:  `%some = slice(%keys, starts=[0, 0], strides=[1, 2]) : u32[4, 2]`

The words of arrays of keys are the last dimension of parameters and results, as in JAX. Inside of a
function, they are the first one: every operation that moves keys is batched over the words. Random
bits are computed by Philox as integer arithmetic. The values are those of the original program, and
each device computes its own elements.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from shardir import ops
from shardir._imports.lazy_import import lazy_import
from shardir.ir.builder import Builder, substitute
from shardir.ir.dtypes import RBG_KEYS
from shardir.ir.module import Function, GlobalTensor, Module, Op, SpmdInterface, Value
from shardir.ir.sharding import DimSharding, Sharding
from shardir.ir.types import TensorType
from shardir.passes.batching import (
    batched_pipeline,
    collectives,
    control_flow,
    manual,
    regions,
)
from shardir.passes.batching.batcher import Batcher
from shardir.passes.batching.transform import restore_names_and_shardings
from shardir.passes.pipeline import Pass
from shardir.passes.rewriting import all_values, used_names

if TYPE_CHECKING:
    from shardir.passes.batching import philox_bits
else:
    philox_bits = lazy_import("shardir.passes.batching.philox_bits")

NUM_WORDS = 4
"""The number of 32-bit words of a key."""
_HANDLERS = {
    **control_flow.HANDLERS,
    **regions.HANDLERS,
    **collectives.HANDLERS,
    **manual.HANDLERS,
    **batched_pipeline.HANDLERS,
}
_UNSHARDED = DimSharding(())


class ExpandRbgKeys(Pass, name="expand-rbg-keys"):
    """Replace keys of four words by arrays of their words, and their random bits by arithmetic."""

    def __call__(self, module: Module) -> Module:
        return expand_rbg_keys(module)


def expand_rbg_keys(module: Module) -> Module:
    """Return the module without keys of four words; the module itself if it has none."""
    functions = tuple(map(_expand_in_function, module.functions))
    if all(new is old for new, old in zip(functions, module.functions, strict=True)):
        return module
    return replace(module, functions=functions)


def _is_key(value: Value) -> bool:
    return value.type.dtype in RBG_KEYS


class _WordBatcher(Batcher):
    """Batches operations on keys over the words; a key is a batched value."""

    def run(self, ops_: Sequence[Op]) -> None:
        for op in ops_:
            self.b.loc, self.b.why = op.loc, op.why
            if op.spec is ops.bitcast and any(map(_is_key, (*op.operands, *op.results))):
                self.bind(self._convert(op), op.result)
            elif op.spec in (ops.random_bits, ops.random_bits_at) and _is_key(op.operands[0]):
                keys = self.get(op.operands[0])
                words = move(self.b, keys, range(keys.type.rank), keys.type.with_dtype("u32"))
                starts = [self.get(start) for start in op.operands[1:]]
                self.bind(philox_bits.draw(self.b, words, starts, op), op.result)
            else:
                super().run([op])

    def _convert(self, op: Op) -> Value:
        """Return the words of keys as an array, or keys from an array of words."""
        (operand,) = op.operands
        array = op.result if _is_key(operand) else operand
        rank = array.type.rank
        if _is_key(operand):
            return move(self.b, self.get(operand), (*range(1, rank), 0), array.type)
        perm = (rank - 1, *range(rank - 1))
        shape = (NUM_WORDS, *array.type.shape[:-1])
        return move(self.b, self.get(operand), perm, op.result.type.with_shape(shape))


def move(b: Builder, x: Value, perm: Sequence[int], result: TensorType) -> Value:
    """Return `x` with transposed dimensions; `result` may have another dtype, which is that of
    the words after all values of keys have it."""
    value = Value(result, b.names.fresh())
    b.append(Op(ops.transpose, (x,), (value,), {"perm": tuple(perm)}, (), b.loc, b.why))
    return value


def _expand_in_function(function: Function) -> Function:
    if not any(map(_is_key, all_values(function.body))):
        return function
    body = function.body
    batcher = _WordBatcher(Builder(used_names(function)), NUM_WORDS, _HANDLERS)
    params = []
    for param in body.params:
        if not _is_key(param):
            params.append(batcher.param(param, False))
            continue
        sharding = param.sharding and _append_words(param.sharding)
        params.append(Value(_words_type(param.type), param.name, sharding))
        perm = (param.type.rank, *range(param.type.rank))
        keys = param.type.with_shape((NUM_WORDS, *param.type.shape))
        batcher.replacement[param] = move(batcher.b, params[-1], perm, keys)
    batcher.run(body.ops)
    returns = [
        move(batcher.b, batcher.get(value), (*range(1, value.type.rank + 1), 0),
             _words_type(value.type))
        if _is_key(value)
        else batcher.get(value)
        for value in body.returns
    ]  # fmt: skip
    named = restore_names_and_shardings(
        batcher.b.block(params, returns), batcher.original, _prepend_words
    )
    words = {
        value: replace(value, type=value.type.with_dtype("u32"))
        for value in all_values(named)
        if _is_key(value)
    }
    results = tuple(
        sharding and _append_words(sharding) if _is_key(value) else sharding
        for value, sharding in zip(body.returns, function.result_shardings, strict=True)
    )
    return Function(function.name, substitute(named, words), results, _expand_spmd(function.spmd))


def _words_type(type: TensorType) -> TensorType:
    return TensorType((*type.shape, NUM_WORDS), "u32")


def _append_words(sharding: Sharding) -> Sharding:
    return replace(sharding, dims=(*sharding.dims, _UNSHARDED))


def _prepend_words(sharding: Sharding) -> Sharding:
    return replace(sharding, dims=(_UNSHARDED, *sharding.dims))


def _expand_spmd(spmd: SpmdInterface | None) -> SpmdInterface | None:
    if spmd is None:
        return None

    def expand(tensor: GlobalTensor) -> GlobalTensor:
        if tensor.type.dtype not in RBG_KEYS:
            return tensor
        return GlobalTensor(_words_type(tensor.type), _append_words(tensor.sharding))

    return SpmdInterface(tuple(map(expand, spmd.params)), tuple(map(expand, spmd.results)))
