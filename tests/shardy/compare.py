"""Comparison of our shardings with Shardy's, and reduction of programs on which they differ."""

from collections.abc import Iterator

from shardir.ir.module import Module
from shardir.passes import Propagate
from shardir.stablehlo.reader import read
from tests.programs import program_reduction
from tests.shardy import oracle
from tests.shardy.oracle import Decisions, NoAnswer, numbered, ours, shardy
from tests.shardy.random_programs.calls import called, text_of


def disagreements(module: Module, level: str) -> list[str]:
    """What we decide otherwise than Shardy, before dimensions are closed; empty if nothing.

    Open and closed dimensions, priorities that are left and explicit replication count too.
    """
    module = numbered(module)
    want = shardy(module, level, close=False)
    got = ours(Propagate(level=level, keep_open=True)(inlined(module)))
    return list(_differences(got, want, called(module)))


def closed_disagreements(module: Module) -> list[str]:
    """The same for what is written down in the end."""
    module = numbered(module)
    want = oracle.whole_is_nothing(shardy(module, "user-priority", close=True))
    got = oracle.whole_is_nothing(ours(Propagate()(inlined(module))))
    return list(_differences(got, want, called(module)))


def inlined(module: Module) -> Module:
    """The module as we read its text if it calls functions, which is in place of the calls."""
    return read(text_of(module)) if len(module.functions) > 1 else module


def _differences(got: Decisions, want: Decisions, calls: set[int]) -> Iterator[str]:
    """What differs, but for what stands where functions are called."""
    if got.params != want.params:
        yield f"parameters: {got.params}, Shardy has {want.params}"
    if got.results != want.results:
        yield f"results: {got.results}, Shardy has {want.results}"
    for number in sorted((got.ops.keys() | want.ops.keys()) - calls):
        mine, theirs = got.ops.get(number), want.ops.get(number)
        if mine != theirs:
            yield f"operation {number}: {mine}, Shardy has {theirs}"


def smallest(module: Module, level: str) -> Module:
    """A part of a program on which we disagree, on which we still do."""
    return program_reduction.smallest(module, lambda part: _disagree(part, level))


def _disagree(module: Module, level: str) -> bool:
    """Whether we do; a part that is no program any more is none that we disagree on."""
    try:
        return bool(disagreements(module, level))
    except Exception:
        return False


def agrees(module: Module) -> list[str] | None:
    """What we decide otherwise at any level or in the end; `None` if Shardy has no answer."""
    try:
        for level in oracle.LEVELS:
            if found := disagreements(module, level):
                return [f"level {level}", *found]
        return closed_disagreements(module)
    except NoAnswer:
        return None
