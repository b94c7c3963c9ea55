"""Resolution of meshes, types and attributes from syntax; values are resolved by the parser."""

from typing import Any

from lark import Token

from shardir.errors import ParseError, suggest_name
from shardir.ir.dtypes import KEYS
from shardir.ir.mesh import Mesh, axis_size_fault
from shardir.ir.module import GlobalTensor
from shardir.ir.operation import Attr, Dense, Symbol
from shardir.ir.sharding import (
    OPEN_DIM,
    Axes,
    Axis,
    DimSharding,
    Sharding,
    find_mesh_of_axis,
    missing_axis_fault,
    sub_axis_fault,
)
from shardir.ir.types import DTYPES, TOKEN, TensorType
from shardir.text import syntax
from shardir.text.literals import decode_dense, flatten_lists, make_dense, unquote_string
from shardir.text.number_text import ShapedElements, parse_number_list
from shardir.text.printer import AXIS_ATTRIBUTES, find_mesh_with_axis

ShardedType = tuple[TensorType, Sharding | None]

_REDUCTIONS = ("add", "max", "min", "mul")


class SyntaxResolver:
    """Resolves syntax with the meshes declared so far, and caches types by their text."""

    def __init__(self, source: syntax.IrSource) -> None:
        self.source = source
        self.meshes: dict[str, Mesh] = {}
        self._typed: dict[str, ShardedType] = {}

    def declare_mesh(self, written: syntax.MeshSyntax) -> None:
        """Declare a mesh."""
        fail, name = self.source.fail, self.name(written.name)
        if name in self.meshes:
            raise fail(f"two meshes are called @{name}", written.name)
        axes: dict[str, int] = {}
        for extent in written.extents:
            axis, size = self.word(extent.name), self.integer(extent.size)
            if axis in axes:
                raise fail(f"mesh @{name} has two axes called {axis!r}", extent.name)
            if fault := axis_size_fault(axis, size):
                raise fail(fault, extent.size)
            axes[axis] = size
        mesh = Mesh(name, tuple(axes.items()))
        if written.devices is not None:
            ids = self.resolve_attr("devices", written.devices)
            expected = (
                "one device id" if not axes else f"the ids 0 to {mesh.size - 1} in some order"
            )
            if len(ids) != mesh.size or not (_is_permutation(ids) if axes else _is_id(ids[0])):
                raise fail(f"mesh @{name} needs {expected}", written.name)
            mesh = Mesh(name, mesh.axes, ids)
        self.meshes[name] = mesh

    def resolve_type(self, written: syntax.TypeSyntax) -> ShardedType:
        """Return a type and its sharding."""
        typed = self._typed.get(key := str(written))
        if typed is None:
            if isinstance(written, Token):
                typed = self._read(written, [])
            else:
                typed = self._read(written.tensor, written.marks)
            self._typed[key] = typed
        return typed

    def resolve_global(self, written: syntax.TypeSyntax) -> GlobalTensor:
        """Return the global type of a per-device tensor; without a stated sharding it is open."""
        type, sharding = self.resolve_type(written)
        if sharding is None:
            at = written if isinstance(written, Token) else written.tensor
            sharding = Sharding.open(self._default_mesh(at).name, type.rank)
        return GlobalTensor(type, sharding)

    def _read(self, token: Token, marks: list[syntax.TypeAnnotation]) -> ShardedType:
        tensor, base = self.source.tensor(token), token.start_pos or 0
        if tensor.dtype not in (*DTYPES, TOKEN):
            hint = (
                suggest_name(tensor.dtype, DTYPES) or f"the element types are {', '.join(DTYPES)}"
            )
            message = f"no element type is called {str(tensor.dtype)!r}; {hint}"
            raise self.source.fail(message, tensor.dtype, base)
        shape = tuple(self.integer(dim.size, base) for dim in tensor.dims)
        for size, dim in zip(shape, tensor.dims, strict=True):
            if size < 0:
                raise self.source.fail("a dimension has 0 or more elements", dim.size, base)
        type = TensorType(shape, str(tensor.dtype))
        is_annotated = any(dim.axes or dim.open or dim.priority for dim in tensor.dims)
        return type, self._sharding(token, tensor, marks, base) if is_annotated or marks else None

    def _sharding(
        self,
        token: Token,
        tensor: syntax.TensorSyntax,
        marks: list[syntax.TypeAnnotation],
        base: int,
    ) -> Sharding:
        marks_by_word: dict[str, syntax.TypeAnnotation] = {}
        for mark in marks:
            word = mark.word.split("[")[0]
            if word in marks_by_word:
                raise self.source.fail(f"{word!r} is stated twice", mark.word)
            marks_by_word[word] = mark
        mesh = (
            self._find_mesh(marks_by_word["on"].items[0])
            if "on" in marks_by_word
            else self._default_mesh(token)
        )
        reduction = "add"
        if "unreduced" in marks_by_word and (
            how := marks_by_word["unreduced"].word[len("unreduced[") : -1]
        ):
            if how not in _REDUCTIONS:
                raise self.source.fail(
                    f"partial values combine by {', '.join(_REDUCTIONS)}, not by {how!r}",
                    marks_by_word["unreduced"].word,
                )
            reduction = how
        replicated, unreduced = (
            tuple(self._axis(axis, mesh) for axis in marks_by_word[word].items)
            if word in marks_by_word
            else ()
            for word in ("replicated", "unreduced")
        )
        dims = tuple(self._dim(dim, mesh, base) for dim in tensor.dims)
        return Sharding(mesh.name, dims, replicated, unreduced, reduction)

    def _dim(self, dim: syntax.DimSyntax, mesh: Mesh, base: int) -> DimSharding:
        if dim.axes is None and not dim.open:
            return OPEN_DIM
        axes: Axes = ()
        if dim.axes is not None:
            axes = tuple(self._axis(axis, mesh, base) for axis in dim.axes.axes)
        priority = dim.priority
        if priority is None:
            return DimSharding(axes, dim.open)
        if len(priority) > 19:
            raise self.source.fail("this priority is too large", priority, base)
        return DimSharding(axes, dim.open, int(priority[1:]))

    def _default_mesh(self, at: Token) -> Mesh:
        for mesh in self.meshes.values():
            return mesh
        raise self.source.fail(
            "there is no mesh to shard this over; declare one first, as mesh @grid = [data=4]", at
        )

    def _find_mesh(self, token: Token) -> Mesh:
        name = self.name(token)
        if name not in self.meshes:
            has = f"there is {', '.join('@' + m for m in self.meshes)}" if self.meshes else ""
            hint = suggest_name(name, self.meshes) or has or "declare it first"
            raise self.source.fail(f"no mesh is called {name!r}; {hint}", token)
        return self.meshes[name]

    def _axis(self, written: syntax.AxisSyntax, mesh: Mesh | None, base: int = 0) -> Axis:
        """Return an axis of a mesh; without a mesh, of the first mesh that has an axis of this
        name, or a sub-axis of the first mesh that has it.
        """
        name, fail = self.word(written.name, base), self.source.fail
        part = None
        if written.pre is not None and written.size is not None:
            part = Axis(name, self.integer(written.pre, base), self.integer(written.size, base))
        meshes = tuple(self.meshes.values())
        if mesh is None and part is not None:
            mesh = find_mesh_of_axis(part, meshes)
        elif mesh is None:
            mesh = find_mesh_with_axis(name, meshes)
        if mesh is None:
            axis_names = [axis for m in self.meshes.values() for axis in m.sizes]
            hint = suggest_name(name, axis_names) or (
                f"the axes are {', '.join(axis_names)}" if axis_names else "declare a mesh first"
            )
            raise fail(f"no mesh has an axis called {name!r}; {hint}", written.name, base)
        if fault := missing_axis_fault(name, mesh):
            raise fail(fault, written.name, base)
        if part is None:
            return Axis.full(name, mesh)
        if fault := sub_axis_fault(part, mesh):
            raise fail(fault, written.name, base)
        return part

    def resolve_attr(self, key: str, written: syntax.AttrSyntax) -> Attr:
        """Return the value of an attribute; `key` decides whether words are symbols or axes."""
        if isinstance(written, Token):
            return self._leaf(key, written)
        if isinstance(written, syntax.ListSyntax):
            return tuple(self.resolve_attr(key, item) for item in written.items)
        if isinstance(written, syntax.AxisSyntax):
            return self._axis(written, None)
        if isinstance(written, syntax.ComplexSyntax):
            return complex(float(written.real), float(written.imag))
        return self._dense(written)

    def _leaf(self, key: str, token: Token) -> Attr:
        if token.type == "INT":
            return self.integer(token)
        if token.type == "FLOAT":
            return float(token)
        if token.type == "NAME" and token in ("true", "false"):
            return token == "true"
        if key in AXIS_ATTRIBUTES:
            return self._axis(syntax.AxisSyntax(token), None)
        return self.string(token) if token.type == "STRING" else Symbol(token)

    def _dense(self, written: syntax.DenseSyntax | syntax.DenseBytesSyntax) -> Dense:
        try:
            if isinstance(written, syntax.DenseBytesSyntax):
                type, sharding = self.resolve_type(written.type)
                if sharding is None and type.dtype not in KEYS:
                    return decode_dense(type, self.string(written.data))
                raise ValueError(f"an array is not stored as {written.type}")
            if written.dtype in KEYS or written.dtype not in DTYPES:
                hint = suggest_name(written.dtype, DTYPES)
                raise ValueError(
                    f"no array has the element type {str(written.dtype)!r}; "
                    f"{'keys are stored as u64' if written.dtype == 'key' else hint}"
                )
            return make_dense(str(written.dtype), *self._elements(written.items))
        except ParseError:  # A syntax error of the list has its own place.
            raise
        except ValueError as error:
            raise self.source.fail(str(error), written.at) from None

    def _elements(self, items: Any) -> ShapedElements:
        """Return the shape and the elements of the list of a dense array."""
        if isinstance(items, Token) and items.type == "NUMBERS":
            plain = parse_number_list(items, words=True)
            if plain is not None:
                return plain
            items = self.source.list(items)
        return flatten_lists(self.resolve_attr("value", items))

    def integer(self, token: Token, base: int = 0) -> int:
        try:
            return int(token)
        except ValueError:  # Python does not parse integers of thousands of digits.
            raise self.source.fail("this integer is too large", token, base) from None

    def string(self, token: Token, base: int = 0) -> str:
        try:
            return unquote_string(token)
        except ValueError:
            raise self.source.fail(
                r"this string has an unknown escape; there are \" \\ \/ \b \f \n \r \t \uXXXX",
                token,
                base,
            ) from None

    def word(self, token: Token, base: int = 0) -> str:
        """Return an axis name."""
        return self.string(token, base) if token.type == "STRING" else str(token)

    def name(self, token: Token) -> str:
        """Return the name after `%` or `@`."""
        if token[1] == '"':
            return self.string(Token("STRING", token[1:], start_pos=token.start_pos))
        return str(token[1:])


def _is_id(device: Attr) -> bool:
    return type(device) is int and device >= 0


def _is_permutation(ids: tuple[Attr, ...]) -> bool:
    return all(map(_is_id, ids)) and sorted(ids) == list(range(len(ids)))
