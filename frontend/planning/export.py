"""Plans as code for JAX, as text of the IR, and as StableHLO."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

from shardir._imports.lazy_import import lazy_import
from shardir.frontend.errors import ArgumentError
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.shardings.mesh import Mesh
from shardir.frontend.shardings.partition_spec import PartitionSpec
from shardir.frontend.source_locations import with_location
from shardir.ir.mesh import Mesh as IrMesh
from shardir.ir.module import Module, Value
from shardir.ir.sharding import OPEN_DIM, Sharding
from shardir.text.literals import format_name
from shardir.text.printer import Printer, print_module

if TYPE_CHECKING:
    from shardir.stablehlo import printer
else:
    printer = lazy_import("shardir.stablehlo.printer")

LINE_WIDTH = 88
"""The number of characters of a line of code for JAX."""


def jax_code(
    mesh: Mesh,
    in_specs: tuple[PyTree, ...],
    out_specs: object,
    constraints: Mapping[str, PartitionSpec],
    rows: Sequence[tuple[str, str, str, str]],
) -> str:
    """Return Python code that defines `mesh`, `in_specs` and `out_specs`, with comments about
    constraints; `rows` has their sharded types, source lines and effects."""
    lines = [
        "import jax",
        *_mesh_imports(mesh),
        *sorted(_class_imports((in_specs, out_specs))),
        "",
        *_mesh_lines(mesh),
        f"in_specs = {_format(in_specs, 0, len('in_specs = '))}",
        f"out_specs = {_format(out_specs, 0, len('out_specs = '))}",
    ]
    if constraints:
        lines.append("# The plan constrains these values, with jax.lax.with_sharding_constraint:")
    for spec, (name, sharded, line, without) in zip(constraints.values(), rows, strict=True):
        place = f", of {line}" if line else ""
        lines.append(f"# {name}: {sharded}, {_one_line(spec)}{place}; without it: {without}")
    return "\n".join(lines) + "\n"


def _mesh_imports(mesh: Mesh) -> list[str]:
    """Return the lines that import what the definition of the mesh uses, and `P`."""
    imports = ["from jax.sharding import AxisType, PartitionSpec as P"]
    return imports if _is_in_device_order(mesh) else ["import numpy as np", *imports]


def _mesh_lines(mesh: Mesh) -> list[str]:
    """Return the lines that define the mesh; JAX uses explicit axes unless the code states the
    types."""
    sizes, names = tuple(mesh.shape.values()), tuple(mesh.shape)
    types = ", ".join(f"AxisType.{kind.name}" for kind in mesh.axis_types)
    types = f"axis_types=({types}{',' if len(names) == 1 else ''})"
    if _is_in_device_order(mesh):
        return [f"mesh = jax.make_mesh({sizes!r}, {names!r}, {types})"]
    return [
        f"devices = np.array(jax.devices())[{list(mesh.device_ids)!r}].reshape({sizes!r})",
        f"mesh = jax.sharding.Mesh(devices, {names!r}, {types})",
    ]


def _is_in_device_order(mesh: Mesh) -> bool:
    return mesh.device_ids == tuple(range(mesh.size))


def _class_imports(node: Any) -> set[str]:
    """Return the lines that import the classes of the containers in a pytree of specs."""
    if node is None or isinstance(node, PartitionSpec):
        return set()
    kind = type(node)
    if kind in (dict, list, tuple):
        children = list(node.values()) if kind is dict else list(node)
        return set().union(*map(_class_imports, children))
    names = _field_names(node)
    if "<locals>" in kind.__qualname__:
        raise ArgumentError(
            with_location(
                f"as_jax cannot import the class {kind.__name__} of an argument or result, which "
                "a function defines; define the class in a module, or use in_specs and out_specs"
            )
        )
    if names is None:
        raise ArgumentError(
            with_location(
                f"as_jax cannot write the container {kind.__name__} of an argument or result as "
                "code, because it is not a dict, list, tuple, namedtuple or dataclass; use "
                "in_specs and out_specs"
            )
        )
    found = {f"from {kind.__module__} import {kind.__qualname__.partition('.')[0]}"}
    return found.union(*(_class_imports(getattr(node, name)) for name in names))


def _field_names(node: object) -> tuple[str, ...] | None:
    """Return the names of the fields of a namedtuple or dataclass, `None` for other objects."""
    if isinstance(node, tuple) and hasattr(node, "_fields"):
        return tuple(node._fields)
    if is_dataclass(node):
        return tuple(field.name for field in fields(node) if field.init)
    return None


def ir_text(module: Module) -> str:
    """Return the text of a module."""
    return print_module(module)


def sdy_text(module: Module) -> str:
    """Return the text of a module in the dialects `stablehlo` and `sdy`."""
    return printer.show(module)


def _format(node: object, indent: int, column: int) -> str:
    """Return a pytree of specs as Python code; what does not fit into a line has one line for each
    entry."""
    text = _one_line(node)
    if column + len(text) <= LINE_WIDTH or not isinstance(node, (dict, list, tuple)):
        return text
    if isinstance(node, PartitionSpec) or not node or hasattr(node, "_fields"):
        return text
    inner = " " * (indent + 4)
    if isinstance(node, dict):
        items = [
            f"{key!r}: {_format(value, indent + 4, indent + 6 + len(repr(key)))}"
            for key, value in node.items()
        ]
        start, end = "{", "}"
    else:
        items = [_format(value, indent + 4, indent + 4) for value in node]
        start, end = "[]" if isinstance(node, list) else "()"
    body = "".join(f"{inner}{item},\n" for item in items)
    return f"{start}\n{body}{' ' * indent}{end}"


def _one_line(node: object) -> str:
    if isinstance(node, PartitionSpec):
        return f"P({', '.join(map(repr, node))})"
    if isinstance(node, dict):
        return "{" + ", ".join(f"{key!r}: {_one_line(value)}" for key, value in node.items()) + "}"
    names = _field_names(node)
    if names is not None:
        items = (f"{name}={_one_line(getattr(node, name))}" for name in names)
        return f"{type(node).__qualname__}({', '.join(items)})"
    if isinstance(node, list):
        return f"[{', '.join(map(_one_line, node))}]"
    if isinstance(node, tuple):
        return f"({', '.join(map(_one_line, node))}{',' if len(node) == 1 else ''})"
    return repr(node)


def argument_text(value: Value, sharding: Sharding | None, mesh: IrMesh) -> str:
    """Return the type of an argument with its sharding, as in the text of programs."""
    if sharding is None:
        return str(value.type)
    dims = tuple(dim if dim.axes else OPEN_DIM for dim in sharding.dims)
    shown = Sharding(sharding.mesh, dims)
    if not any(dim.axes for dim in dims):
        return str(value.type)
    return Printer((mesh,)).sharded_type(value.type, shown)


def class_name(names: Sequence[str]) -> str:
    """Return the common name of arguments, with `*` in place of the integers in which they
    differ."""
    parts = [name.split(".") for name in names]
    merged = [each[0] if len(set(each)) == 1 else "*" for each in zip(*parts, strict=True)]
    return "%" + (format_name(names[0]) if len(names) == 1 else ".".join(merged))
