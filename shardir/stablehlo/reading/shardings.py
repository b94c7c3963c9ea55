"""Parser of meshes and shardings in Shardy's syntax."""

from lark import Token

from shardir.errors import count_noun, suggest_name
from shardir.ir.mesh import Mesh, axis_size_fault
from shardir.ir.sharding import (
    Axes,
    Axis,
    DimSharding,
    Sharding,
    missing_axis_fault,
    sub_axis_fault,
)
from shardir.ir.types import TOKEN, TensorType
from shardir.stablehlo.reading import records
from shardir.stablehlo.reading.types import TypeParser

_REDUCTIONS = {"sum": "add", "add": "add", "max": "max", "min": "min", "mul": "mul"}


class ShardingResolver:
    """Resolves meshes and shardings, and caches shardings by their text.

    A mesh inside a sharding refers to an equal mesh of the module; if there is none, a new one is
    added with the name `mesh`, `mesh_0`, ..., `empty_mesh` or `maximal_mesh_3`.
    """

    def __init__(self, types: TypeParser) -> None:
        self.types, self.source = types, types.source
        self.meshes: dict[str, Mesh] = {}
        self._known: dict[str, list[Sharding]] = {}

    def declare_mesh(self, written: records.MeshRecord) -> None:
        """Declare a mesh."""
        name = self.types.string(written.name)
        if name in self.meshes:
            raise self.source.fail(f"two meshes are called @{name}", written.name)
        self.meshes[name] = self._mesh(name, written.body, 0)

    def _mesh(self, name: str, token: Token, base: int) -> Mesh:
        """Return a mesh from `<["a"=2]>`, with any prefix."""
        inside, base = angle_bracket_text(token, base)
        body: records.MeshBodyRecord = self.source.parse("mesh_body", inside, base)
        axes: dict[str, int] = {}
        for extent in body.extents:
            axis, size = self.types.string(extent.name), self.types.integer(extent.size, base)
            if axis in axes:
                raise self.source.fail(f"this mesh has two axes called {axis!r}", extent.name, base)
            if fault := axis_size_fault(axis, size):
                raise self.source.fail(fault, extent.size, base)
            axes[axis] = size
        mesh = Mesh(name, tuple(axes.items()))
        if body.ids is None:
            return mesh
        ids = tuple(self.types.integer(token, base) for token in body.ids)
        right = sorted(ids) == list(range(mesh.size)) if axes else len(ids) == 1 and ids[0] >= 0
        if not right:
            expected = f"the ids 0 to {mesh.size - 1} in some order" if axes else "one device id"
            raise self.source.error(f"this mesh needs {expected}", base, len(inside))
        # Shardy rejects a device list in iota order.
        return Mesh(name, mesh.axes, None if axes and ids == tuple(range(mesh.size)) else ids)

    def sharding(self, token: Token, type: TensorType | None = None) -> Sharding:
        """Return the sharding of `#sdy.sharding<@mesh, [{"a"}, {}]>`; the prefix is optional."""
        return self._read("sharding", token, None if type is None else [type])[0]

    def per_value(self, token: Token, types: list[TensorType]) -> list[Sharding]:
        """Return the shardings of `#sdy.sharding_per_value<[<...>, <...>]>`, one per type."""
        return self._read("per_value", token, types)

    def _read(self, start: str, token: Token, types: list[TensorType] | None) -> list[Sharding]:
        shardings = self._known.get(token)
        if shardings is None:
            inside, base = angle_bracket_text(token, 0)
            parsed = self.source.parse(start, inside, base)
            written = parsed if start == "per_value" else [parsed]
            shardings = [self._sharding(each, base) for each in written]
            self._known[str(token)] = shardings
        if types is not None:
            if len(shardings) != len(types):
                raise self.source.fail(
                    f"{count_noun(len(types), 'value')} cannot have "
                    f"{count_noun(len(shardings), 'sharding')}",
                    token,
                )
            for sharding, type in zip(shardings, types, strict=True):
                if type.dtype == TOKEN and (sharding.replicated or sharding.unreduced):
                    raise self.source.fail("a token is not replicated or unreduced", token)
            shardings = [
                self._complete_maximal(each, type)
                for each, type in zip(shardings, types, strict=True)
            ]
            for sharding, type in zip(shardings, types, strict=True):
                if len(sharding.dims) != type.rank:
                    raise self.source.fail(
                        f"this sharding is of rank {len(sharding.dims)}, the tensor is {type}",
                        token,
                    )
        return shardings

    def check_of_no_results(self, token: Token) -> None:
        """Raise `ParseError` unless an operation without results can state the shardings.

        It states where it runs: on all devices, or on the single device of a maximal mesh.
        """
        shardings = self._read("per_value", token, None)
        if len(shardings) > 1 or any(any(each.mentioned_axes()) for each in shardings):
            raise self.source.fail(
                "an operation without results can only state one sharding, without axes", token
            )

    def _complete_maximal(self, sharding: Sharding, type: TensorType) -> Sharding:
        """Return the sharding with unsharded dimensions if a maximal mesh omits them."""
        if sharding.dims or not self.meshes[sharding.mesh].is_maximal:
            return sharding
        return Sharding.fully_replicated(sharding.mesh, type.rank)

    def _sharding(self, written: records.ShardingRecord, base: int) -> Sharding:
        mesh = self._find_mesh(written.mesh, base)
        dims = tuple(self._dim(dim, mesh, base) for dim in written.dims)
        marks: dict[str, records.ShardingMarkRecord] = {}
        for mark in written.marks:
            if mark.word in marks:
                raise self.source.fail(f"{str(mark.word)!r} is stated twice", mark.word, base)
            marks[str(mark.word)] = mark
        reduction = "add"
        pending = marks.get("unreduced")
        if pending is not None and pending.reduction is not None:
            if pending.reduction not in _REDUCTIONS:
                raise self.source.fail(
                    f"partial values combine by {', '.join(_REDUCTIONS)}, "
                    f"not by {str(pending.reduction)!r}",
                    pending.reduction,
                    base,
                )
            reduction = _REDUCTIONS[pending.reduction]
        if mesh.is_maximal and (dims or marks):
            raise self.source.fail(
                f"a sharding on the single device of @{mesh.name} has no dimensions and no axes; "
                f"write <@{mesh.name}, []>",
                written.mesh,
                base,
            )
        replicated, unreduced = (
            self._axes(marks[word].axes, mesh, base) if word in marks else ()
            for word in ("replicated", "unreduced")
        )
        return Sharding(mesh.name, dims, replicated, unreduced, reduction)

    def _dim(self, written: records.DimRecord, mesh: Mesh, base: int) -> DimSharding:
        priority = written.priority
        if priority is not None and len(priority) > 19:
            raise self.source.fail("this priority is too large", priority, base)
        if priority is not None and len(priority) > 2 and priority[1] == "0":
            plain = priority[1:].lstrip("0") or "0"
            raise self.source.fail(
                f"a priority has no leading zeros; write p{plain}", priority, base
            )
        return DimSharding(
            self._axes(written.axes, mesh, base),
            written.open,
            None if priority is None else int(priority[1:]),
        )

    def axes(self, entries: list[records.AttributeRecord], mesh: Mesh) -> Axes:
        """Return the axes of `{"a", "b"}` outside of shardings."""
        return self._axes([records.AxisRecord(entry.key) for entry in entries], mesh, 0)

    def _axes(self, written: list[records.AxisRecord], mesh: Mesh, base: int) -> Axes:
        return tuple(self.axis(axis, mesh, base) for axis in written)

    def axis(self, written: records.AxisRecord, mesh: Mesh, base: int) -> Axis:
        name = self.types.string(written.name)
        if fault := missing_axis_fault(name, mesh):
            raise self.source.fail(fault, written.name, base)
        if written.pre is None or written.size is None:
            return Axis.full(name, mesh)
        pre, size = self.types.integer(written.pre, base), self.types.integer(written.size, base)
        axis = Axis(name, pre, size)
        if fault := sub_axis_fault(axis, mesh):
            raise self.source.fail(fault, written.name, base)
        if axis.is_full(mesh):
            message = f"this is the complete axis of size {size}, not a part of it; write {name!r}"
            raise self.source.fail(message.replace("'", '"'), written.name, base)
        return axis

    def _find_mesh(self, token: Token, base: int) -> Mesh:
        if token.type == "INLINED":
            return self._add_inline_mesh(token, base)
        name = self.types.string(token)
        if name not in self.meshes:
            has = f"there is {', '.join('@' + m for m in self.meshes)}" if self.meshes else ""
            hint = suggest_name(name, self.meshes) or has or "declare it first"
            raise self.source.fail(f"no mesh is called {name!r}; {hint}", token, base)
        return self.meshes[name]

    def _add_inline_mesh(self, token: Token, base: int) -> Mesh:
        inline = self._mesh("mesh", token, base + (token.start_pos or 0))
        for mesh in self.meshes.values():
            if (mesh.axes, mesh.device_ids) == (inline.axes, inline.device_ids):
                return mesh
        name = "mesh" if inline.axes else "empty_mesh"
        if inline.is_maximal and inline.device_ids:
            name = f"maximal_mesh_{inline.device_ids[0]}"
        names = (name, *(f"{name}_{number}" for number in range(len(self.meshes) + 1)))
        free = next(name for name in names if name not in self.meshes)
        self.meshes[free] = Mesh(free, inline.axes, inline.device_ids)
        return self.meshes[free]


def angle_bracket_text(token: Token, base: int) -> tuple[str, int]:
    """Return the text from the first `<` on, and its position."""
    at = token.find("<")
    start = base or (token.start_pos or 0)
    return (str(token), start) if at < 0 else (str(token[at:]), start + at)
