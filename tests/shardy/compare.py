"""Comparison of our shardings with Shardy's, and reduction of programs on which they differ."""

from collections.abc import Iterator
from itertools import combinations

from shardir.frontend.random_programs.reduction import smallest_failure
from shardir.ir.module import Module
from shardir.ir.sub_axes import is_major_part
from shardir.passes import Propagate
from shardir.stablehlo.reader import read
from tests.shardy import oracle
from tests.shardy.oracle import Decisions, NoAnswer, number_ops, ours, shardy
from tests.shardy.random_programs.calls import call_numbers, text_of


def disagreements(module: Module, level: str, *, conservative: bool = False) -> list[str]:
    """Return the differences from Shardy's decisions before dimensions are closed; empty if none.

    The comparison includes open and closed dimensions, remaining priorities and explicit
    replication.
    """
    module = number_ops(module)
    want = shardy(module, level, close=False, conservative=conservative)
    propagate = Propagate(level=level, keep_open=True, conservative=conservative)
    got = ours(propagate(read_calls(module)))
    return _differences_unless_by_size(got, want, call_numbers(module))


def closed_disagreements(module: Module) -> list[str]:
    """Return the differences of the final shardings."""
    module = number_ops(module)
    want = oracle.whole_is_nothing(shardy(module, "user-priority", close=True))
    got = oracle.whole_is_nothing(ours(Propagate()(read_calls(module))))
    return _differences_unless_by_size(got, want, call_numbers(module))


def read_calls(module: Module) -> Module:
    """Return the module as read from its text, in which calls contain their functions."""
    return read(text_of(module)) if len(module.functions) > 1 else module


def _differences_unless_by_size(got: Decisions, want: Decisions, calls: set[int]) -> list[str]:
    """Return the differences; raise `NoAnswer` if Shardy compared parts of an axis by their size.

    Shardy regards (1)2 as a prefix of (1)3 although no tensor can be sharded along both. shardir
    does not, and differs where the results contain two such parts. Shardy's result may lack the
    smaller part, which the larger one replaced; it is then in ours.
    """
    found = list(_differences(got, want, calls))
    if found and any(
        a.name == b.name and a.pre == b.pre and not is_major_part(a, b) and not is_major_part(b, a)
        for a, b in combinations((*want.axes(), *got.axes()), 2)
    ):
        raise NoAnswer("Shardy compared parts of an axis by their size")
    return found


def _differences(got: Decisions, want: Decisions, calls: set[int]) -> Iterator[str]:
    """Return the differences, except at operations inside of called functions."""
    if got.params != want.params:
        yield f"parameters: {got.params}, Shardy has {want.params}"
    if got.results != want.results:
        yield f"results: {got.results}, Shardy has {want.results}"
    for number in sorted((got.ops.keys() | want.ops.keys()) - calls):
        mine, theirs = got.ops.get(number), want.ops.get(number)
        if mine != theirs:
            yield f"operation {number}: {mine}, Shardy has {theirs}"


def smallest(module: Module, level: str) -> Module:
    """Return a part of a program with disagreements that still has one."""
    return smallest_failure(module, lambda part: _disagree(part, level))


def _disagree(module: Module, level: str) -> bool:
    """Return whether there is a disagreement; an invalid part has none."""
    try:
        return bool(disagreements(module, level))
    except Exception:
        return False


def agrees(module: Module) -> list[str] | None:
    """Return the differences at every level and of the final shardings; `None` if Shardy has no
    result.
    """
    try:
        for level in oracle.LEVELS:
            if found := disagreements(module, level):
                return [f"level {level}", *found]
        return closed_disagreements(module)
    except NoAnswer:
        return None
