"""The lowering table: for each operation its lowering rule, or the reason why it cannot be emitted.

`lowers("tanh")` registers the function that writes an operation's statements, `refuses("svd", ...)`
the reason and the alternative for the error. Each operation is in one of the two.
"""

from collections.abc import Callable
from dataclasses import dataclass

from shardir.backends.emission import EmissionError
from shardir.backends.ipu.emitter import Emitter
from shardir.ir.module import Op
from shardir.ir.operation import OPS

Lower = Callable[[Emitter, Op], None]


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason why an operation cannot be emitted, and an alternative."""

    reason: str
    fix: str


LOWERED: dict[str, Lower] = {}
REFUSED: dict[str, Refusal] = {}


def lowers(*names: str) -> Callable[[Lower], Lower]:
    """Return a decorator that registers the lowering rule of the named operations."""

    def register(rule: Lower) -> Lower:
        for name in names:
            _check(name)
            LOWERED[name] = rule
        return rule

    return register


def refuses(*names: str, reason: str, fix: str) -> None:
    """Register operations that cannot be emitted."""
    for name in names:
        _check(name)
        REFUSED[name] = Refusal(reason, fix)


def lower(e: Emitter, op: Op) -> None:
    """Write the statements of an operation; raise `EmissionError` if it cannot be emitted."""
    if op.name in REFUSED:
        refusal = REFUSED[op.name]
        raise e.refuse(op, refusal.reason, refusal.fix)
    if op.name not in LOWERED:
        raise unknown(e, op)
    LOWERED[op.name](e, op)


def unknown(e: Emitter, op: Op) -> EmissionError:
    """Return the error for an operation that is neither lowered nor refused."""
    return e.refuse(
        op,
        "target 'ipu' has no lowering for it",
        "write it with other operations, or register a lowering with @lowers in "
        "shardir/backends/ipu/lowering",
    )


def _check(name: str) -> None:
    if name not in OPS:
        raise ValueError(f"no operation is called {name!r}")
    if name in LOWERED or name in REFUSED:
        raise ValueError(f"{name!r} is in the lowering table of the ipu twice")
