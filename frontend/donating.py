"""Runs whose donated arguments are gone afterwards."""

from collections.abc import Callable, Sequence
from typing import Any

from shardir.errors import ShardirError
from shardir.frontend.array import Array
from shardir.frontend.locations import here


def donating(
    run: Callable[[list[Any]], Any], leaves: list[Any], donated: Sequence[int], name: str
) -> Any:
    """What a run of the function called `name` gives; afterwards the donated arrays are gone."""
    try:
        made = run(leaves)
    except BaseException as error:
        # After Ctrl-C, say, results may lie in the memory of what was donated. Most errors of ours
        # are found before anything runs.
        if not isinstance(error, ShardirError) or error.begun:
            _give_up([leaves[i] for i in donated], name)
        raise
    if made is not None:
        _give_up([leaves[i] for i in donated], name)
    return made


def _give_up(leaves: Sequence[Any], name: str) -> None:
    place = here() if leaves else None
    where = f" at {place.site.loc}" if place else ""
    reason = (
        f"has been donated to {name}{where}; go on with what that call returned, or donate a copy"
    )
    for leaf in leaves:
        if type(leaf) is Array:
            leaf.give_up(reason)
