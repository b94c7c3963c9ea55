"""Drop what nobody uses.

before: `%a = exp(%x)`, `%y = neg(%x)`, `return %y`
after:  `%y = neg(%x)`, `return %y`

No operation does anything but make its results, collectives included: all devices run the same
program, so all of them leave one out together. Only operations that say that they have an effect
stay anyway. A loop or branch also loses the results that
nobody uses, with all that only they needed: values that are carried round a loop only for their
own sake, slices that are taken or stacked in vain.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from shardir.ir import Block, Function, Module, Op, Value
from shardir.passes.pipeline import Pass


@dataclass(frozen=True)
class DeadCode(Pass, name="dce"):
    """Keep the operations that the function's results depend on."""

    def __call__(self, module: Module) -> Module:
        return replace(module, functions=tuple(map(_function, module.functions)))


def _function(function: Function) -> Function:
    live = set(function.body.returns)
    return replace(function, body=_block(function.body, live))


def _block(block: Block, live: set[Value]) -> Block:
    """The block without what is not in `live`, which gains everything that is used."""
    kept: list[Op] = []
    for op in reversed(block.ops):
        if not any(result in live for result in op.results) and not _acts(op):
            continue
        if op.blocks:
            op = _LIVELY.get(op.name, _keep_all)(op, live)
        live.update(op.operands)
        kept.append(op)
    return (
        block
        if len(kept) == len(block.ops)
        and all(a is b for a, b in zip(reversed(kept), block.ops, strict=True))
        else Block(block.params, tuple(reversed(kept)), block.returns)
    )


def _acts(op: Op) -> bool:
    """Whether it, or an operation in its blocks, is there for more than its results."""
    return op.spec.effect or any(inner.spec.effect for b in op.blocks for inner in b.walk())


def _body(block: Block, live: set[Value]) -> Block:
    """A block inside an operation, all of whose returned values are used."""
    live.update(block.returns)
    return _block(block, live)


def _keep_all(op: Op, live: set[Value]) -> Op:
    return replace(op, blocks=tuple(_body(block, live) for block in op.blocks))


def _case(op: Op, live: set[Value]) -> Op:
    places = [i for i, result in enumerate(op.results) if result in live]
    blocks = (replace(block, returns=_at(block.returns, places)) for block in op.blocks)
    return replace(
        op,
        results=_at(op.results, places),
        blocks=tuple(_body(block, live) for block in blocks),
    )


def _while(op: Op, live: set[Value]) -> Op:
    condition, body = op.blocks
    asked = _used(condition, condition.returns)
    wanted = {
        i for i, result in enumerate(op.results) if result in live or condition.params[i] in asked
    }
    places = _carried(body, len(op.results), wanted)
    return replace(
        op,
        operands=_at(op.operands, places),
        results=_at(op.results, places),
        blocks=(
            _body(replace(condition, params=_at(condition.params, places)), live),
            _body(Block(_at(body.params, places), body.ops, _at(body.returns, places)), live),
        ),
    )


def _scan(op: Op, live: set[Value]) -> Op:
    (body,) = op.blocks
    carries: int = op.attrs["carries"]
    made = [i for i in range(carries, len(op.results)) if op.results[i] in live]
    wanted = {i for i in range(carries) if op.results[i] in live}
    kept = _carried(body, carries, wanted, _at(body.returns, made))
    returns = _at(body.returns, [*kept, *made])
    used = _used(body, returns)
    taken = [i for i in range(carries, len(op.operands)) if body.params[i] in used]
    new = Block(_at(body.params, [*kept, *taken]), body.ops, returns)
    return replace(
        op,
        operands=_at(op.operands, [*kept, *taken]),
        results=_at(op.results, [*kept, *made]),
        attrs={**op.attrs, "carries": len(kept)},
        blocks=(_body(new, live),),
    )


def _manual(op: Op, live: set[Value]) -> Op:
    """A manual computation without results that nobody uses, and operands that it does not."""
    (body,) = op.blocks
    made = [i for i, result in enumerate(op.results) if result in live]
    returns = _at(body.returns, made)
    used = _used(body, returns)
    taken = [i for i, param in enumerate(body.params) if param in used]
    attrs = {
        **op.attrs,
        "in_axes": tuple(op.attrs["in_axes"][i] for i in taken),
        "out_axes": tuple(op.attrs["out_axes"][i] for i in made),
    }
    return replace(
        op,
        operands=_at(op.operands, taken),
        results=_at(op.results, made),
        attrs=attrs,
        blocks=(_body(Block(_at(body.params, taken), body.ops, returns), live),),
    )


_LIVELY = {"case": _case, "while": _while, "scan": _scan, "manual_computation": _manual}


def _carried(
    body: Block, carries: int, wanted: set[int], others: Sequence[Value] = ()
) -> list[int]:
    """The carried values that those at `wanted`, or `others`, depend on in some iteration."""
    number = {param: i for i, param in enumerate(body.params[:carries])}
    while True:
        used = _used(body, [*(body.returns[i] for i in wanted), *others])
        more = wanted | {number[v] for v in used if v in number}
        if more == wanted:
            return sorted(wanted)
        wanted = more


def _used(block: Block, ends: Sequence[Value]) -> set[Value]:
    """Everything in a block that `ends` are made of."""
    live = set(ends)
    for op in reversed(block.ops):
        if any(result in live for result in op.results) or _acts(op):
            live.update(op.uses())
    return live


def _at(values: tuple[Value, ...], places: Sequence[int]) -> tuple[Value, ...]:
    return tuple(values[i] for i in places)
