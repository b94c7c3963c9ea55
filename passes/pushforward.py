"""The way forward through one block: from tangents of operands to tangents of results.

Operations are visited in order. Each stays as it is, and what makes the tangents of its results
comes after it: by the rule it declares, or derived from its vjp. A vjp is linear in the cotangent
it is given, and the transpose of the derivative; pulling the tangents back through it transposes
it again, which gives the derivative.
"""

from collections.abc import Callable, Mapping, Sequence

from shardir.build import Builder
from shardir.ir import Block, Op, Value
from shardir.ops.elementwise import flat
from shardir.passes.activity import active_values
from shardir.passes.differentiate_control import HANDLERS as BACKWARDS
from shardir.passes.pullback import Pullback, error
from shardir.tangents import Tangents, diagonal
from shardir.types import INEXACT

Handler = Callable[["Pushforward", Op], None]
"""Appends an operation with blocks that makes tangents too, and says what they are."""


class Pushforward:
    """Grows in `b`, which gets the operations of the program too.

    `tangents` are those of the values so far, in all blocks; a value without one does not move.
    `kept` are the operations to keep whether or not anything uses them.
    """

    def __init__(
        self,
        b: Builder,
        handlers: Mapping[str, Handler],
        tangents: dict[Value, Value] | None = None,
    ) -> None:
        self.b = b
        self.handlers = handlers
        self.tangents: dict[Value, Value] = {} if tangents is None else tangents
        self.kept: set[Op] = set()

    def inner(self) -> "Pushforward":
        """The way forward through a block inside this one."""
        inner = Pushforward(self.b.inner(), self.handlers, self.tangents)
        inner.b.why = self.b.why
        return inner

    def get(self, value: Value) -> Value | None:
        """The tangent of a value; `None` is zero."""
        return self.tangents.get(value)

    def whole(self, value: Value) -> Value:
        """The tangent of a value, also where it is zero."""
        found = self.get(value)
        return self.b.full(0, value.type) if found is None else found

    def give(self, value: Value, tangent: Value | None) -> None:
        """Say what the tangent of a value is."""
        if tangent is None:
            self.tangents.pop(value, None)
        else:
            self.tangents[value] = tangent

    def keep(self, op: Op) -> None:
        """Append an operation of the program."""
        self.b.append(op)
        self.kept.add(op)

    def run(self, ops: Sequence[Op]) -> None:
        """Append `ops`, and what makes their tangents."""
        loc, why = self.b.loc, self.b.why
        for op in ops:
            moves = any(self.get(value) is not None for value in op.uses())
            if moves and op.name in self.handlers:
                self.b.loc, self.b.why = op.loc, op.why
                self.handlers[op.name](self, op)
                continue
            self.keep(op)
            if moves and any(value.type.dtype in INEXACT for value in op.results):
                self.b.loc, self.b.why = op.loc, f"tangent of %{op.results[0].name}"
                self._through(op)
        self.b.loc, self.b.why = loc, why

    def block(self, params: Sequence[Value], returns: Sequence[Value]) -> Block:
        """The block so far, without what turned out to be of no use."""
        needed = set(returns)
        ops = []
        for op in reversed(self.b.ops):
            if op in self.kept or any(value in needed for value in op.results):
                ops.append(op)
                needed.update(op.uses())
        return Block(tuple(params), tuple(reversed(ops)), tuple(returns))

    def _through(self, op: Op) -> None:
        spec = op.spec
        # What has no elements does not move anything, though slopes of it may be 0 / 0.
        tangents = [self.get(value) if value.type.size else None for value in op.operands]
        if spec.vjp is flat or not any(tangents):
            return
        made = None
        if spec.jvp is not None:
            made = spec.jvp(self.b, op, tangents)
        elif spec.elementwise and spec.vjp is not None:
            made = diagonal(self.b, op, tangents)
        if made is None:
            made = self._transposed(op, tangents)
        for value, tangent in zip(op.results, made, strict=True):
            if tangent is not None and tangent.type != value.type:
                raise error(
                    f"the jvp rule of {op.name} makes {tangent.type} for "
                    f"%{value.name}: {value.type}",
                    op,
                )
            self.give(value, tangent)

    def _transposed(self, op: Op, tangents: Tangents) -> Tangents:
        """The tangents of the results by the vjp, pulled back through."""
        if op.spec.vjp is None:
            raise error(f"%{op.results[0].name} = {op.name} has no derivative", op)
        b = self.b.inner()
        b.why = self.b.why
        stand_ins = [
            b.param(value.type) if value.type.dtype in INEXACT else None for value in op.results
        ]
        chosen = [value for value in stand_ins if value is not None]
        g = stand_ins[0] if len(stand_ins) == 1 else tuple(stand_ins)
        cotangents = op.spec.vjp(b, g, *op.operands, *op.results, **op.attrs)
        active = active_values(Block(tuple(chosen), tuple(b.ops), ()), chosen)
        back = Pullback(b.inner(), active, BACKWARDS)
        for cotangent, tangent in zip(cotangents, tangents, strict=True):
            if cotangent is not None and tangent is not None:
                back.give(cotangent, tangent)
        forward = back.run(b.ops)
        for made in (*forward, *back.b.ops):
            self.b.append(
                Op(made.spec, made.operands, made.results, made.attrs, made.blocks, b.loc, b.why)
            )
        return [None if value is None else back.take(value) for value in stand_ins]
