"""Whether we and Shardy decide alike, and the smallest program on which we do not."""

from collections.abc import Iterator

from shardir.ir import Module
from shardir.passes import Propagate
from tests import smaller
from tests.shardy import oracle
from tests.shardy.oracle import Decisions, numbered, ours, shardy


def disagreements(module: Module, level: str) -> list[str]:
    """What we decide otherwise than Shardy, before dimensions are closed; empty if nothing.

    Open and closed dimensions, priorities that are left and explicit replication count too.
    """
    module = numbered(module)
    want = shardy(module, level, close=False)
    got = ours(Propagate(level=level, keep_open=True)(module))
    return list(_differences(got, want))


def closed_disagreements(module: Module) -> list[str]:
    """The same for what is written down in the end."""
    module = numbered(module)
    want = oracle.whole_is_nothing(shardy(module, "user-priority", close=True))
    got = oracle.whole_is_nothing(ours(Propagate()(module)))
    return list(_differences(got, want))


def _differences(got: Decisions, want: Decisions) -> Iterator[str]:
    if got.params != want.params:
        yield f"parameters: {got.params}, Shardy has {want.params}"
    if got.results != want.results:
        yield f"results: {got.results}, Shardy has {want.results}"
    for number in sorted(got.ops.keys() | want.ops.keys()):
        mine, theirs = got.ops.get(number), want.ops.get(number)
        if mine != theirs:
            yield f"operation {number}: {mine}, Shardy has {theirs}"


def smallest(module: Module, level: str) -> Module:
    """A part of a program on which we disagree, on which we still do."""
    return smaller.smallest(module, lambda part: _disagree(part, level))


def _disagree(module: Module, level: str) -> bool:
    try:
        return bool(disagreements(module, level))
    except Exception:
        return False
