"""The way back through one block: from cotangents of results to cotangents of what they used.

Operations are visited from last to first. Each takes the cotangents of its results, which are
complete by then, and adds to those of its operands what its vjp rule says. A cotangent that was
never given is zero, and costs nothing.
"""

from collections.abc import Callable, Mapping, Sequence

from shardir.build import Builder
from shardir.errors import DifferentiateError
from shardir.ir import Op, Value

Cotangents = tuple[Value | None, ...]
"""Those of the results of an operation; `None` where nothing came back."""
Handler = Callable[["Pullback", Op, Cotangents], Op | tuple[Op, ...]]
"""Pulls cotangents back through an operation with blocks. Returns the operation with whatever
more it must hand over, or the operations that take its place."""


class Pullback:
    """Grows in `b`. `given` are the cotangents that are known so far.

    `active` are the values that have cotangents at all, `wishes` says for a cotangent which value
    it belongs to, so that it can be named after it.
    """

    def __init__(
        self,
        b: Builder,
        active: set[Value],
        handlers: Mapping[str, Handler],
        wishes: dict[Value, Value] | None = None,
    ) -> None:
        self.b = b
        self.active = active
        self.handlers = handlers
        self.wishes: dict[Value, Value] = {} if wishes is None else wishes
        self.given: dict[Value, Value] = {}

    def inner(self) -> "Pullback":
        """The way back through a block inside this one."""
        b = self.b.inner()
        b.why = self.b.why
        return Pullback(b, self.active, self.handlers, self.wishes)

    def give(self, value: Value, cotangent: Value | None) -> None:
        """Add to the cotangent of a value; `None` is zero."""
        if cotangent is None or value not in self.active:
            return
        known = self.given.get(value)
        self.given[value] = cotangent if known is None else self.b.add(known, cotangent)

    def take(self, value: Value) -> Value | None:
        """The cotangent of a value that gets no more."""
        cotangent = self.given.pop(value, None)
        if cotangent is not None:
            self.wishes.setdefault(cotangent, value)
        return cotangent

    def run(self, ops: Sequence[Op]) -> tuple[Op, ...]:
        """Pull back through `ops`; returns them with what more they must hand over."""
        forward: list[Op] = []
        loc, why = self.b.loc, self.b.why
        for op in reversed(ops):
            cotangents = tuple(map(self.take, op.results))
            if any(g is not None for g in cotangents):
                self.b.loc = op.loc
                self.b.why = f"gradient of %{op.results[0].name}"
                made = self._through(op, cotangents)
                forward += reversed(made) if isinstance(made, tuple) else [made]
            else:
                forward.append(op)
        self.b.loc, self.b.why = loc, why
        return tuple(reversed(forward))

    def _through(self, op: Op, cotangents: tuple[Value | None, ...]) -> Op | tuple[Op, ...]:
        if op.name in self.handlers:
            return self.handlers[op.name](self, op, cotangents)
        if op.spec.vjp is None:
            raise error(f"%{op.results[0].name} = {op.name} has no derivative", op)
        g = cotangents[0] if len(op.results) == 1 else cotangents
        made = op.spec.vjp(self.b, g, *op.operands, *op.results, **op.attrs)
        for value, cotangent in zip(op.operands, made, strict=True):
            if cotangent is not None and value in self.active and cotangent.type != value.type:
                raise error(
                    f"the vjp rule of {op.name} makes {cotangent.type} for "
                    f"%{value.name}: {value.type}",
                    op,
                )
            self.give(value, cotangent)
        return op


def error(message: str, op: Op | None) -> DifferentiateError:
    """A `DifferentiateError` that says which line of the user's program it is about."""
    return DifferentiateError(f"{message}\n --> {op.loc}" if op and op.loc else message)
