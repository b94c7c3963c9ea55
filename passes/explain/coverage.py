"""Operations, dimensions and annotations that do not take part in propagation."""

from collections.abc import Iterator

from shardir.ir import Op
from shardir.passes.explain.data import Coverage, Unruled, Whole
from shardir.passes.explain.history import History, Places, op_text, spelled
from shardir.passes.explain.idle import idle
from shardir.passes.explain.parts import left_over
from shardir.passes.explain.program import Program, tell
from shardir.passes.propagate import Propagate
from shardir.placement import Axis, Sharding, size_of
from shardir.types import TensorType


def coverage(
    program: Program, *, propagate: Propagate | None = None, places: Places | None = None
) -> Coverage:
    """Return operations without a rule, unsharded dimensions, and annotations without effect.

    An annotation has no effect if propagation decides the same without it; each is tried.
    """
    chosen = propagate or Propagate()
    run = tell(program, chosen, places)
    histories = run.histories.values()
    whole = [row for history in histories for row in _whole(history)]
    return Coverage(
        tuple(_unruled(history, op) for history in histories for op in history.story.mute),
        tuple(sorted(whole, key=lambda row: -row.nbytes)),
        tuple(idle(run, chosen)),
    )


def _unruled(history: History, op: Op) -> Unruled:
    shardings = [history.story.written[value].sharding for value in op.tensors]
    axes = [
        history.axis(axis, history.mesh(sharding))
        for sharding in shardings
        if sharding
        for axis in sharding.used()
    ]
    return Unruled(op_text(op), history.name, history.loc_of_op(op), tuple(dict.fromkeys(axes)))


def _whole(history: History) -> Iterator[Whole]:
    """Yield the unsharded dimensions that an unused axis divides."""
    known: dict[tuple[int, TensorType], list[tuple[int, int, tuple[str, ...], int]]] = {}
    for value in history.made.values():
        if value.sharding is None:
            continue
        key = id(value.sharding), value.type  # programs are repetitive
        if key not in known:
            known[key] = list(_whole_dims(history, value.type, value.sharding))
        for found in known[key]:
            yield Whole(spelled(value), history.name, *found)


def _whole_dims(
    history: History, type: TensorType, sharding: Sharding
) -> Iterator[tuple[int, int, tuple[str, ...], int]]:
    """Yield unsharded dimensions, their sizes, the axes that divide them, and the bytes on each
    device."""
    mesh = history.meshes[sharding.mesh]
    used = (*sharding.used(), *sharding.unreduced)
    free = [Axis(name, 1, size) for name, size in mesh.axes if size > 1]
    free = [axis for axis in free if left_over(axis, used) == [axis]]
    nbytes = type.nbytes // (size_of(sharding.used()) or 1)
    for dim, size in enumerate(type.shape):
        fits = [axis for axis in free if size and size % axis.size == 0]
        if fits and not sharding.dims[dim].axes:
            yield dim, size, tuple(history.axis(axis, mesh) for axis in fits), nbytes
