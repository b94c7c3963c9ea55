"""Sampler of calls of functions, which may call other functions."""

from shardir.frontend.random_programs.isolated_scope import IsolatedScope
from shardir.frontend.random_programs.scope import Scope, sampler


@sampler("call")
def _(s: Scope, name: str) -> None:
    _append_call(s, name, depth=s.integer(0, 2))


def _append_call(s: Scope, name: str, depth: int) -> None:
    """Append a call of a function that contains up to `depth` levels of further calls."""
    operands = [s.tensor() for _ in range(s.integer(0, 3))]
    b = s.b.inner()
    params = [b.param(operand.type, s.choose("", "c")) for operand in operands]
    inner = IsolatedScope(s.choices, b, s.mesh, [], list(params), s.inner, s.sizes)
    inner.some()
    if depth:
        _append_call(inner, name, depth - 1)
    inner.some()
    returns = [inner.tensor() for _ in range(inner.integer(0, 3))]
    s.emit(name, *operands, blocks=(b.block(params, returns),), callee=s.choose("f", "g"))
