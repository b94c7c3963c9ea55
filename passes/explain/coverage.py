"""Operations, dimensions and annotations that do not take part in propagation."""

from collections.abc import Iterator

from shardir.ir.location import SourceLocations
from shardir.ir.module import Op
from shardir.ir.sharding import Axis, Sharding, count_positions
from shardir.ir.types import TensorType
from shardir.passes.explain.propagated_program import (
    Program,
    PropagatedProgram,
    pipeline_of,
    propagate_with_history,
)
from shardir.passes.explain.propagation_history.history import FunctionHistory, op_text, value_text
from shardir.passes.explain.propagation_history.sub_axes import difference_of_axes
from shardir.passes.explain.reports import Coverage, UnruledOperation, UnshardedDim
from shardir.passes.explain.unused_annotations import unused_annotations
from shardir.passes.propagation.propagate import Propagate


def coverage(
    program: Program,
    *,
    propagate: Propagate | None = None,
    places: SourceLocations | None = None,
    pipeline: str | None = None,
) -> Coverage:
    """Return operations without a rule, unsharded dimensions, and annotations without effect.

    An annotation has no effect if propagation decides the same without it; each is tried.
    `pipeline` and `propagate` are those of `explain`.
    """
    chosen = pipeline_of(program, pipeline, propagate)
    return coverage_of(propagate_with_history(program, chosen, places))


def coverage_of(run: PropagatedProgram) -> Coverage:
    """Return the coverage of a program that was propagated with a record."""
    histories = run.histories.values()
    all_rows = [row for history in histories for row in _unsharded_dims(history)]
    return Coverage(
        tuple(
            _without_rule(history, op) for history in histories for op in history.story.impassable
        ),
        tuple(sorted(all_rows, key=lambda row: -row.nbytes)),
        tuple(unused_annotations(run)),
    )


def _without_rule(history: FunctionHistory, op: Op) -> UnruledOperation:
    shardings = [history.decided_shardings[value] for value in op.tensors]
    axes = [
        history.axis(axis, history.mesh(sharding))
        for sharding in shardings
        if sharding
        for axis in sharding.used_axes()
    ]
    return UnruledOperation(
        op_text(op), history.name, history.loc_of_op(op), tuple(dict.fromkeys(axes))
    )


def _unsharded_dims(history: FunctionHistory) -> Iterator[UnshardedDim]:
    """Yield the unsharded dimensions that an unused axis divides."""
    cache: dict[tuple[int, TensorType], list[tuple[int, int, tuple[str, ...], int]]] = {}
    for value in history.made.values():
        if value.sharding is None:
            continue
        sharding = history.intern(value.sharding)
        key = id(sharding), value.type  # programs are repetitive
        if key not in cache:
            cache[key] = list(_unsharded_dims_of_type(history, value.type, value.sharding))
        for dim_and_reason in cache[key]:
            yield UnshardedDim(value_text(value), history.name, *dim_and_reason)


def _unsharded_dims_of_type(
    history: FunctionHistory, type: TensorType, sharding: Sharding
) -> Iterator[tuple[int, int, tuple[str, ...], int]]:
    """Yield unsharded dimensions, their sizes, the axes that divide them, and the bytes on each
    device."""
    mesh = history.meshes[sharding.mesh]
    used = (*sharding.used_axes(), *sharding.unreduced)
    free = [Axis(name, 1, size) for name, size in mesh.axes if size > 1]
    free = [axis for axis in free if difference_of_axes(axis, used) == [axis]]
    nbytes = type.nbytes // count_positions(sharding.used_axes())
    for dim, size in enumerate(type.shape):
        fits = [axis for axis in free if size and size % axis.size == 0]
        if fits and not sharding.dims[dim].axes:
            yield dim, size, tuple(history.axis(axis, mesh) for axis in fits), nbytes
