"""Batching of random bits that are drawn from a key of four words (`rbg` and `unsafe_rbg`).

All elements of a batch share the first key of the batch: they are consecutive elements of one
array. JAX documents this for `rbg` keys in `vmap`. It is why `vmap` has a handler for these
operations, and other users of batching rules have not.
"""

from collections.abc import Mapping, Sequence

from shardir.ir.module import Op, Value
from shardir.ops.random.random_bits import random_bits
from shardir.passes.batching.batcher import Batcher, Handler


def _batch_draw(outer: Batcher, op: Op) -> Sequence[Value]:
    keys = outer.get(op.operands[0])
    one = keys.type.with_shape((1,))
    before, outer.b.why = outer.b.why, "all elements of a batch share the first key of rbg"
    first = outer.b.slice(keys, starts=(0,), strides=(1,), result=one)
    first = outer.b.reshape(first, result=op.operands[0].type)
    outer.b.why = before
    together = op.result.type.with_shape((outer.size, *op.result.type.shape))
    drawn: Value = outer.b.emit(random_bits, first, result=together, **op.attrs)
    return (drawn,)


HANDLERS: Mapping[str, Handler] = {random_bits.name: _batch_draw}
"""The handlers of operations that draw random bits."""
