"""Plans as code for JAX, as text of the IR, and as StableHLO."""

from collections.abc import Mapping, Sequence
from typing import Any

from shardir.frontend.shardings.mesh import Mesh
from shardir.frontend.shardings.partition_spec import PartitionSpec
from shardir.ir.mesh import Mesh as IrMesh
from shardir.ir.module import Module, Value
from shardir.ir.sharding import OPEN_DIM, Sharding
from shardir.text.literals import format_name
from shardir.text.printer import Printer, print_module

LINE_WIDTH = 88
"""The number of characters of a line of code for JAX."""


def jax_code(mesh: Mesh, in_specs: tuple[Any, ...], out_specs: Any) -> str:
    """Return Python code that defines `mesh`, `in_specs` and `out_specs`."""
    sizes = tuple(mesh.shape.values())
    names = tuple(mesh.shape)
    lines = [
        "import jax",
        "from jax.sharding import PartitionSpec as P",
        "",
        f"mesh = jax.make_mesh({sizes!r}, {names!r})",
        f"in_specs = {_format(in_specs, 0, len('in_specs = '))}",
        f"out_specs = {_format(out_specs, 0, len('out_specs = '))}",
    ]
    return "\n".join(lines) + "\n"


def ir_text(module: Module) -> str:
    """Return the text of a module."""
    return print_module(module)


def sdy_text(module: Module) -> str:
    """Return the text of a module in the dialects `stablehlo` and `sdy`."""
    # For start-up time.
    from shardir.stablehlo.printer import show

    return show(module)


def _format(node: Any, indent: int, column: int) -> str:
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


def _one_line(node: Any) -> str:
    if isinstance(node, PartitionSpec):
        return f"P({', '.join(map(repr, node))})"
    if isinstance(node, Mapping):
        return "{" + ", ".join(f"{key!r}: {_one_line(value)}" for key, value in node.items()) + "}"
    if isinstance(node, tuple) and hasattr(node, "_fields"):
        fields = (f"{name}={_one_line(getattr(node, name))}" for name in node._fields)
        return f"{type(node).__name__}({', '.join(fields)})"
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
    """Return the common name of arguments, with `*` in place of the numbers in which they
    differ."""
    parts = [name.split(".") for name in names]
    merged = [each[0] if len(set(each)) == 1 else "*" for each in zip(*parts, strict=True)]
    return "%" + (format_name(names[0]) if len(names) == 1 else ".".join(merged))
