"""Shardings that depend on the order of the worklist.

If two annotations have equal priority, the one whose axes arrive first is kept. Two runs with
different orders find such values; the annotations that they depend on are fragile, and one more
annotation would make the result unique.
"""

from collections.abc import Iterator
from dataclasses import replace

from shardir.passes.explain.data import Annotation, Dependence, OrderSensitivity
from shardir.passes.explain.history import History, Places, spelled
from shardir.passes.explain.origins import roots
from shardir.passes.explain.program import Program, tell
from shardir.passes.propagate import Propagate
from shardir.placement import Sharding


def order_sensitive(
    program: Program, *, propagate: Propagate | None = None, places: Places | None = None
) -> OrderSensitivity:
    """Return the values whose sharding differs between the worklist orders `lifo` and `fifo`."""
    chosen = propagate or Propagate()
    lifo = tell(program, replace(chosen, order="lifo"), places)
    fifo = tell(program, replace(chosen, order="fifo"), places)
    return OrderSensitivity(tuple(
        row
        for name, history in lifo.histories.items()
        for row in _differing(history, fifo.histories[name])
    ))  # fmt: skip


def _differing(lifo: History, fifo: History) -> Iterator[Dependence]:
    for name, value in lifo.made.items():
        other = fifo.made[name]
        if value.sharding == other.sharding:
            continue
        behind = (
            *_behind(lifo, name, value.sharding, other.sharding),
            *_behind(fifo, name, other.sharding, value.sharding),
        )
        yield Dependence(
            spelled(value),
            lifo.name,
            lifo.printer.typed(value.type, value.sharding),
            fifo.printer.typed(other.type, other.sharding),
            tuple(dict.fromkeys(behind)),
        )


def _behind(
    history: History, name: str, mine: Sharding | None, other: Sharding | None
) -> Iterator[Annotation]:
    """Yield the annotations of the axes of a value in dimensions that differ."""
    cell = history.story.cells[history.values[name]]
    for dim, cut in enumerate(mine.dims if mine else ()):
        if other is None or cut != other.dims[dim]:
            for axis in cut.axes:
                yield from roots(history, cell, dim, axis)
