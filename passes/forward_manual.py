"""Forward-mode rule of `manual_computation`: tangents enter and leave beside their primals."""

from dataclasses import replace

from shardir.ir import Op
from shardir.passes.make_varying import implicit
from shardir.passes.pushforward import Handler, Pushforward
from shardir.types import INEXACT


def _manual(outer: Pushforward, op: Op) -> None:
    (body,) = op.blocks
    ins, outs = op.attrs["in_axes"], op.attrs["out_axes"]
    moving = [i for i, value in enumerate(op.operands) if outer.get(value) is not None]
    inner = outer.inner()
    params = []
    for i, param in enumerate(body.params):
        inner.give(param, inner.b.param(param.type) if i in moving else None)
        if (tangent := inner.get(param)) is not None:
            params.append(tangent)
    inner.run(body.ops)
    made = [
        i
        for i, value in enumerate(body.returns)
        if inner.get(value) is not None and value.type.dtype in INEXACT
    ]
    block = inner.block(
        (*body.params, *params), (*body.returns, *(inner.whole(body.returns[i]) for i in made))
    )
    # A custom_jvp rule inside of the body may already contain explicit `vary` operations.
    (block,) = implicit(op.attrs["axes"], block)
    results = []
    for i in made:
        tangent = outer.b.param(op.results[i].type)
        outer.give(op.results[i], tangent)
        results.append(tangent)
    attrs = {
        **op.attrs,
        "in_axes": (*ins, *(ins[i] for i in moving)),
        "out_axes": (*outs, *(outs[i] for i in made)),
    }
    operands = (*op.operands, *(outer.whole(op.operands[i]) for i in moving))
    outer.keep(
        replace(op, operands=operands, results=(*op.results, *results), attrs=attrs,
                blocks=(block,))
    )  # fmt: skip


HANDLERS: dict[str, Handler] = {"manual_computation": _manual}
