"""Forward-mode rule of `manual_computation`: tangents enter and leave beside their primals."""

from dataclasses import replace

from shardir.ir.module import Op
from shardir.ir.types import INEXACT
from shardir.passes.autodiff.make_varying import remove_explicit_varying
from shardir.passes.autodiff.pushforward import Handler, Pushforward


def _push_manual(outer: Pushforward, op: Op) -> None:
    (body,) = op.blocks
    ins, outs = op.attrs["in_axes"], op.attrs["out_axes"]
    moving = [i for i, value in enumerate(op.operands) if outer.get(value) is not None]
    inner = outer.inner()
    params = []
    for i, param in enumerate(body.params):
        inner.set_tangent(param, inner.b.param(param.type) if i in moving else None)
        if (tangent := inner.get(param)) is not None:
            params.append(tangent)
    inner.run(body.ops)
    positions = [
        i
        for i, value in enumerate(body.returns)
        if inner.get(value) is not None and value.type.dtype in INEXACT
    ]
    block = inner.block(
        (*body.params, *params),
        (*body.returns, *(inner.get_or_zeros(body.returns[i]) for i in positions)),
    )
    # A custom_jvp rule inside of the body may already contain explicit `vary` operations.
    (block,) = remove_explicit_varying(op.attrs["axes"], block)
    results = []
    for i in positions:
        tangent = outer.b.param(op.results[i].type)
        outer.set_tangent(op.results[i], tangent)
        results.append(tangent)
    attrs = {
        **op.attrs,
        "in_axes": (*ins, *(ins[i] for i in moving)),
        "out_axes": (*outs, *(outs[i] for i in positions)),
    }
    operands = (*op.operands, *(outer.get_or_zeros(op.operands[i]) for i in moving))
    outer.append(
        replace(op, operands=operands, results=(*op.results, *results), attrs=attrs,
                blocks=(block,))
    )  # fmt: skip


HANDLERS: dict[str, Handler] = {"manual_computation": _push_manual}
