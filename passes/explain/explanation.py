"""Explanation of the sharding of one value."""

from shardir.errors import suggestion
from shardir.ir import Value
from shardir.passes.explain.absences import absences
from shardir.passes.explain.data import Chain, Explanation
from shardir.passes.explain.history import History, Places, spelled
from shardir.passes.explain.origins import chains
from shardir.passes.explain.program import ExplainError, Program, tell
from shardir.passes.propagate import Propagate
from shardir.text.literals import show_name


def explain(
    program: Program,
    value: str,
    *,
    function: str | None = None,
    propagate: Propagate | None = None,
    places: Places | None = None,
) -> Explanation:
    """Return the origin of each axis of a value, and why each other axis of the mesh is absent.

    `value` is its name (`h` or `%h`), `function` the function that contains it (the first by
    default). Raises `ExplainError` if there is no such value.
    """
    history = tell(program, propagate, places).history(function)
    return explanation(history, find(history, value))


def find(history: History, name: str) -> Value:
    """Return the value with a name in the prepared function."""
    bare = name.removeprefix("%").strip('"')
    for each, value in history.values.items():
        if bare in (each, show_name(each)):
            return value
    names = [f"%{show_name(each)}" for each in history.values]
    hint = suggestion(f"%{bare}", names) or "`shardir opt` prints the program with all names"
    raise ExplainError(f"@{history.name} has no value called {name!r}; {hint}")


def explanation(history: History, value: Value) -> Explanation:
    written = history.story.written[value]
    return Explanation(
        spelled(value),
        history.printer.typed(written.type, written.sharding),
        history.name,
        history.loc_of_value(value.name),
        tuple(chains_of(history, value)),
        tuple(absences(history, value)),
    )


def chains_of(history: History, value: Value) -> list[Chain]:
    """Return the chains of all axes of a value."""
    sharding = history.story.written[value].sharding
    if sharding is None:
        return []
    cell = history.story.cells[value]
    return [
        chain
        for dim, cut in enumerate(sharding.dims)
        for axis in cut.axes
        for chain in chains(history, cell, dim, axis)
    ]
