"""The axes of Shardy's collectives, and checks that the sharding of the result follows from them.

A collective states its axes for each dimension (`sdy.all_gather [{"x"}, {}]`), as moves
(`sdy.all_to_all [{"x"}: 0->1]`) or as one list (`sdy.all_reduce {"x"}`), and the sharding of its
result. It is read as a reshard to that sharding, so that a text in which the two contradict each
other must be refused. The rules are those of Shardy's verifiers.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NoReturn

from shardir.errors import count_noun
from shardir.ir.mesh import Mesh
from shardir.ir.module import Value
from shardir.ir.sharding import (
    Axes,
    Axis,
    Sharding,
    count_positions,
    missing_axis_fault,
    sub_axis_fault,
)
from shardir.ir.sub_axes import append_axis
from shardir.stablehlo.reading.call import OperationReader
from shardir.text.number_text import parse_natural_number
from shardir.text.printer import format_axis
from shardir.verify.well_formed import find_axis_list_faults

_AXIS = re.compile(r'"([^"]+)"(?::\(([0-9]+)\)([0-9]+))?')
_LIST = re.compile(r"\{([^{}]*)\}(?:\s*:\s*(-?\d+)\s*->\s*(-?\d+))?")
_ATTRIBUTES = ("gathering_axes", "slicing_axes", "reduce_scatter_axes", "reduction_axes", "params",
               "axes")  # fmt: skip
"""The attributes with the axes in the generic form."""


@dataclass(frozen=True)
class AxisList:
    """Axes in the text of a collective; `source` and `target` are the dimensions of a move."""

    axes: Axes
    source: int = -1
    target: int = -1


def read_axis_lists(call: OperationReader, mesh: Mesh) -> list[AxisList]:
    """Return the lists of axes of a collective, on the mesh of its result."""
    lists = []
    for inside, source, target in _LIST.findall(_text(call)):
        axes = tuple(_axis(call, mesh, *parts) for parts in _AXIS.findall(inside))
        dims = (int(source), int(target)) if source else (-1, -1)
        lists.append(AxisList(axes, *dims))
    return lists


def read_reduction(call: OperationReader) -> str:
    """Return how a collective combines partial values."""
    words = re.findall(r"\w+", f"{call.attrs.get('reduction_op', '')} {_text(call)}")
    return next((word for word in ("max", "min") if word in words), "add")


def _text(call: OperationReader) -> str:
    """Return the text of the axes: an attribute in the generic form, else before the operand."""
    for name in _ATTRIBUTES:
        if name in call.attrs:
            return str(call.attrs[name])
    return call.reader.source.text[call.written.name.end_pos or 0 :].partition("%")[0]


def _axis(call: OperationReader, mesh: Mesh, name: str, pre: str, size: str) -> Axis:
    """Return an axis of the mesh, or its sub-axis `(pre)size`."""
    if fault := missing_axis_fault(name, mesh):
        raise call.fail(fault)
    if not pre:
        return Axis.full(name, mesh)
    before, count = parse_natural_number(pre), parse_natural_number(size)
    if before is None or count is None:
        raise call.fail(f"a number of the sub-axis {name}:({pre}){size} is too large")
    axis = Axis(name, before, count)
    if fault := sub_axis_fault(axis, mesh):
        raise call.fail(fault)
    return axis


def check_collective(call: OperationReader, value: Value, result: Sharding) -> None:
    """Raise `ParseError` if the sharding of the result does not follow from the operand's."""
    mesh = call.reader.shardings.meshes[result.mesh]
    before = value.sharding or Sharding.fully_replicated(mesh.name, value.type.rank)
    _CollectiveChecker(call, before, result, mesh).check()


@dataclass
class _CollectiveChecker:
    call: OperationReader
    before: Sharding
    after: Sharding
    mesh: Mesh

    def check(self) -> None:
        name = self.call.name.removeprefix("sdy.")
        before_mesh = self.call.reader.shardings.meshes[self.before.mesh]
        if name == "collective_permute":
            self.check_permutation(before_mesh)
            return
        if before_mesh.name != self.mesh.name:
            self.fail(
                f"is from mesh @{before_mesh.name} to mesh @{self.mesh.name}; only "
                "sdy.collective_permute and sdy.reshard change the mesh"
            )
        lists = read_axis_lists(self.call, self.mesh)
        is_sorted = name in ("all_reduce", "replicated_to_unreduced")
        self.check_axes([each.axes for each in lists], is_sorted=is_sorted)
        _CHECKS[name](self, lists)

    def fail(self, message: str) -> NoReturn:
        raise self.call.fail(f"{self.call.name} {message}")

    def show(self, axes: Sequence[Axis]) -> str:
        return ", ".join(format_axis(axis, self.mesh) for axis in axes) or "no axis"

    def check_axes(self, lists: Sequence[Axes], *, is_sorted: bool) -> None:
        for fault in find_axis_list_faults(lists, self.mesh):
            self.fail(f"states wrong axes: {fault}")
        ordered = sort_axes(lists[0], self.mesh) if is_sorted and lists else None
        if ordered is not None and ordered != lists[0]:
            self.fail(f"states axes in the order of the mesh; write {self.show(ordered)}")

    def check_dims(self, expected: Sequence[Axes]) -> None:
        """Check the axes of the dimensions of the result."""
        for dim, (want, stated) in enumerate(zip(expected, self.after.axes, strict=True)):
            if want != stated:
                self.fail(
                    f"leaves dimension {dim} sharded along {self.show(want)}, but its "
                    f"out_sharding states {self.show(stated)}"
                )

    def check_per_dim(self, lists: Sequence[AxisList], apply: Callable[[int, Axes], Axes]) -> None:
        """Check a collective with one list of axes for each dimension."""
        if len(lists) != len(self.after.dims):
            self.fail(
                f"states axes of {count_noun(len(lists), 'dimension')} for a tensor of rank "
                f"{len(self.after.dims)}"
            )
        self.check_dims([apply(dim, each.axes) for dim, each in enumerate(lists)])

    def remove(self, dim: int, axes: Axes) -> Axes:
        """Return the axes of a dimension of the operand without `axes`, which are its last."""
        left = self.before.axes[dim]
        for axis in reversed(axes):
            last = left[-1] if left else None
            if last is None or not last.contains(axis) or last.next != axis.next:
                self.fail(
                    f"removes {self.show([axis])} from dimension {dim}, but the last axes of this "
                    f"dimension are {self.show(self.before.axes[dim])}"
                )
            left = left[:-1]
            if axis.pre > last.pre:
                left = (*left, Axis(last.name, last.pre, axis.pre // last.pre))
        return left

    def add(self, dim: int, axes: Axes) -> Axes:
        """Return the axes of a dimension of the operand followed by `axes`."""
        result = self.before.axes[dim]
        for axis in axes:
            result = append_axis(result, axis)
        return result

    def check_gather(self, lists: Sequence[AxisList]) -> None:
        self.check_per_dim(lists, self.remove)

    def check_slice(self, lists: Sequence[AxisList]) -> None:
        self.check_per_dim(lists, self.add)

    def check_reduce_scatter(self, lists: Sequence[AxisList]) -> None:
        self.check_per_dim(lists, self.add)
        self.check_reduction(tuple(axis for each in lists for axis in each.axes))

    def check_moves(self, lists: Sequence[AxisList]) -> None:
        """Check an all-to-all, whose moves concern different dimensions."""
        if not lists:
            self.fail("states no axes that it moves")
        dims = list(self.before.axes)
        seen: set[int] = set()
        for each in lists:
            for dim in (each.source, each.target):
                if not 0 <= dim < len(dims):
                    self.fail(
                        f"moves axes from or to dimension {dim} of a tensor of rank {len(dims)}"
                    )
                if dim in seen:
                    self.fail(f"moves axes twice from or to dimension {dim}")
                seen.add(dim)
            dims[each.source] = self.remove(each.source, each.axes)
            dims[each.target] = self.add(each.target, each.axes)
        sources = [each.source for each in lists]
        if sources != sorted(sources):
            self.fail(f"states the dimensions from which it moves axes in ascending order, "
                      f"not {', '.join(map(str, sources))}")  # fmt: skip
        self.check_dims(dims)

    def check_all_reduce(self, lists: Sequence[AxisList]) -> None:
        axes = lists[0].axes if lists else ()
        self.check_dims(self.before.axes)
        self.check_no_overlap(axes, self.before.used_axes(), "along which the operand is sharded")
        self.check_no_overlap(axes, self.before.replicated, "along which the operand is replicated")
        self.check_no_overlap(axes, self.after.unreduced, "along which the result is unreduced")
        self.check_reduction(axes)

    def check_reduction(self, axes: Axes) -> None:
        """Check the unreduced axes of a reduction, which only removes some of them."""
        reduction = read_reduction(self.call)
        pending = self.before.unreduced
        if self.before.reduction != reduction and any(
            axis.overlaps(other) for axis in axes for other in pending
        ):
            self.fail(
                f"combines values by {reduction}, but the operand is unreduced by "
                f"{self.before.reduction}"
            )
        for axis in self.after.unreduced:
            if not any(other.overlaps(axis) for other in pending):
                self.fail(
                    f"has a result that is unreduced along {self.show([axis])}, along which the "
                    "operand is not"
                )

    def check_no_overlap(self, axes: Axes, others: Iterable[Axis], what: str) -> None:
        for axis, other in product(axes, others):
            if axis.overlaps(other):
                self.fail(f"states the axis {self.show([axis])}, {what}")

    def check_sharded_to_unreduced(self, lists: Sequence[AxisList]) -> None:
        self.check_per_dim(lists, self.remove)
        self.check_unreduced(tuple(axis for each in lists for axis in each.axes))

    def check_replicated_to_unreduced(self, lists: Sequence[AxisList]) -> None:
        axes = lists[0].axes if lists else ()
        if not axes:
            self.fail("states no axes along which its result is unreduced")
        self.check_dims(self.before.axes)
        self.check_no_overlap(axes, self.before.used_axes(), "along which the operand is sharded")
        self.check_no_overlap(axes, self.before.unreduced, "along which the operand is unreduced")
        self.check_unreduced(axes)

    def check_unreduced(self, axes: Axes) -> None:
        """Check that the result is unreduced along `axes` and those of the operand."""
        if self.after.reduction != "add":
            self.fail(f"makes a sum of partial values, not a {self.after.reduction}")
        expected = merge_sorted((*self.before.unreduced, *axes), self.mesh)
        if self.after.unreduced != expected:
            self.fail(
                f"makes a value that is unreduced along {self.show(expected)}, but its "
                f"out_sharding states {self.show(self.after.unreduced)}"
            )

    def check_permutation(self, before_mesh: Mesh) -> None:
        """Check a permutation, which may change the order of devices, but no number of shards."""
        if before_mesh.axes != self.mesh.axes:
            self.fail(
                f"is from mesh @{before_mesh.name} to mesh @{self.mesh.name}, which has other axes"
            )
        if before_mesh.name != self.mesh.name and before_mesh.device_ids == self.mesh.device_ids:
            self.fail(
                f"is from mesh @{before_mesh.name} to the equal mesh @{self.mesh.name}; use one"
            )
        for dim, (old, new) in enumerate(zip(self.before.axes, self.after.axes, strict=True)):
            if count_positions(old) != count_positions(new):
                self.fail(
                    f"changes the number of shards of dimension {dim} from "
                    f"{count_positions(old)} to {count_positions(new)}"
                )


def sort_axes(axes: Axes, mesh: Mesh) -> Axes:
    """Return the axes in the order of the mesh."""
    order = list(mesh.sizes)
    return tuple(sorted(axes, key=lambda axis: (order.index(axis.name), axis.pre)))


def merge_sorted(axes: Axes, mesh: Mesh) -> Axes:
    """Return the axes in the order of the mesh; parts that follow one another are merged."""
    merged: Axes = ()
    for axis in sort_axes(axes, mesh):
        merged = append_axis(merged, axis)
    return merged


_CHECKS: dict[str, Callable[[_CollectiveChecker, Sequence[AxisList]], None]] = {
    "all_gather": _CollectiveChecker.check_gather,
    "all_slice": _CollectiveChecker.check_slice,
    "all_to_all": _CollectiveChecker.check_moves,
    "all_reduce": _CollectiveChecker.check_all_reduce,
    "reduce_scatter": _CollectiveChecker.check_reduce_scatter,
    "sharded_to_unreduced": _CollectiveChecker.check_sharded_to_unreduced,
    "replicated_to_unreduced": _CollectiveChecker.check_replicated_to_unreduced,
}
