"""Manual computations, many times at once: every device does its piece of all of them."""

from collections.abc import Sequence

from shardir.ir import Op, Value
from shardir.ops.manual import manual_computation
from shardir.passes.batcher import Batcher, Handler


def _manual(outer: Batcher, op: Op) -> Sequence[Value]:
    """No manual axis cuts the new dimension; the free ones may."""
    (body,) = op.blocks
    inner = outer.inner()
    params = [
        inner.param(param, outer.has(value))
        for param, value in zip(body.params, op.operands, strict=True)
    ]
    inner.run(body.ops)
    returns = [inner.get(value) for value in body.returns]
    ins = [
        ((), *cuts) if outer.has(value) else cuts
        for value, cuts in zip(op.operands, op.attrs["in_axes"], strict=True)
    ]
    outs = [
        ((), *cuts) if inner.has(value) else cuts
        for value, cuts in zip(body.returns, op.attrs["out_axes"], strict=True)
    ]
    made = outer.b.emit(
        manual_computation,
        *map(outer.get, op.operands),
        blocks=(inner.b.block(params, returns),),
        axes=op.attrs["axes"],
        in_axes=tuple(ins),
        out_axes=tuple(outs),
    )
    return made if isinstance(made, tuple) else (made,)


HANDLERS: dict[str, Handler] = {"manual_computation": _manual}
