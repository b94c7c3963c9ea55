"""MLIR text of types, literals and shardings."""

import re
from collections.abc import Iterable
from math import isfinite
from typing import Any

import numpy as np

from shardir.ir.dtypes import SMALL_FLOATS
from shardir.ir.mesh import Mesh
from shardir.ir.module import Value
from shardir.ir.operation import Dense
from shardir.ir.sharding import Axis, DimSharding, Sharding
from shardir.ir.types import INTEGERS, TOKEN, TensorType

MLIR_DTYPES = {
    "bool": "i1",
    "u2": "ui2",
    "u4": "ui4",
    "u8": "ui8",
    "u16": "ui16",
    "u32": "ui32",
    "u64": "ui64",
    "c64": "complex<f32>",
    "c128": "complex<f64>",
    "key": "ui64",
    **{name: f"f{name[1:].upper()}" for name in SMALL_FLOATS},
}
"""MLIR's names of element types that differ from those of this IR. A key is stored as 64 bits."""


def format_tensor(type: TensorType) -> str:
    """Return the text of a type: `tensor<8x4xf32>`."""
    if type.dtype == TOKEN:
        return "!stablehlo.token"
    return (
        f"tensor<{''.join(f'{n}x' for n in type.shape)}{MLIR_DTYPES.get(type.dtype, type.dtype)}>"
    )


def format_array(numbers: Iterable[int]) -> str:
    """Return the text of an array attribute: `array<i64: 1, 2>`."""
    text = ", ".join(map(str, numbers))
    return f"array<i64: {text}>" if text else "array<i64>"


def format_int_list(numbers: Iterable[int]) -> str:
    """Return the text of a list: `[1, 2]`."""
    return f"[{', '.join(map(str, numbers))}]"


def format_matrix(rows: Iterable[Iterable[int]]) -> str:
    """Return the text of an i64 matrix: `dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>`."""
    numbers = [list(row) for row in rows]
    shape = f"{len(numbers)}x{len(numbers[0]) if numbers else 2}"
    return f"dense<{numbers if numbers else ''}> : tensor<{shape}xi64>"


def format_integer(value: int, width: int = 64) -> str:
    return f"{value} : i{width}"


def format_boolean(value: bool) -> str:
    return "true" if value else "false"


def format_literal(value: object, type: TensorType) -> str:
    """Return the text of a constant: `dense<1.0> : tensor<8xf32>`; arrays are written as bytes."""
    return f"dense<{_elements(value, type)}> : {format_tensor(type)}"


def _elements(value: Any, type: TensorType) -> str:
    if isinstance(value, Dense):
        data = value.array
        if data.size == 0:
            return ""
        if data.dtype == np.bool_:
            return str(data.tolist()).lower()
        return f'"0x{data.astype(data.dtype.newbyteorder("<")).tobytes().hex().upper()}"'
    if type.dtype == "bool":
        return format_boolean(bool(value))
    if type.dtype in ("c64", "c128"):
        part = "f32" if type.dtype == "c64" else "f64"
        number = complex(value)
        return f"({_float(number.real, part)}, {_float(number.imag, part)})"
    if type.dtype in INTEGERS or type.dtype == "key":
        return str(int(value))
    return _float(float(value), type.dtype)


def _float(value: float, dtype: str) -> str:
    """Return a float in decimal notation, or as its bits if it is not finite."""
    if isfinite(value):
        digits, exponent, power = repr(value).partition("e")
        return f"{digits if '.' in digits else digits + '.0'}{exponent}{power}"
    stored = np.array(value).astype(TensorType((), dtype).numpy)
    return f"0x{stored.tobytes()[::-1].hex().upper()}"


_BARE_SYMBOL = re.compile(r"[A-Za-z_][\w$.]*")


def format_symbol(name: str) -> str:
    """Return the reference to a function or mesh."""
    if _BARE_SYMBOL.fullmatch(name):
        return f"@{name}"
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'@"{escaped}"'


def format_mesh(mesh: Mesh) -> str:
    """Return the text of a mesh: `<["data"=4, "model"=2]>`."""
    axes = ", ".join(f'"{name}"={size}' for name, size in mesh.axes)
    if mesh.device_ids is None or (mesh.device_ids == tuple(range(mesh.size)) and mesh.axes):
        return f"<[{axes}]>"
    return f"<[{axes}], device_ids={format_int_list(mesh.device_ids)}>"


def format_mlir_axis(axis: Axis, mesh: Mesh) -> str:
    """Return the text of an axis: `"data"`, or `"data":(1)2` for a sub-axis."""
    part = "" if axis.is_full(mesh) else f":({axis.pre}){axis.size}"
    return f'"{axis.name}"{part}'


def format_sharding(sharding: Sharding, mesh: Mesh) -> str:
    """Return the text of a sharding: `<@grid, [{"data", ?}, {}]>`."""

    def axes(group: Iterable[Axis]) -> str:
        return ", ".join(format_mlir_axis(axis, mesh) for axis in group)

    def dim(each: DimSharding) -> str:
        inner = ", ".join(filter(None, [axes(each.axes), "?" if each.open else ""]))
        return f"{{{inner}}}{'' if each.priority is None else f'p{each.priority}'}"

    # A sharding on a maximal mesh has no dimensions.
    dims = "" if mesh.is_maximal else ", ".join(map(dim, sharding.dims))
    text = f"@{sharding.mesh}, [{dims}]"
    if sharding.replicated:
        text += f", replicated={{{axes(sharding.replicated)}}}"
    if sharding.unreduced:
        how = "" if sharding.reduction == "add" else sharding.reduction
        text += f", unreduced={how}{{{axes(sharding.unreduced)}}}"
    return f"<{text}>"


def format_sharding_per_value(values: Iterable[Value], meshes: dict[str, Mesh]) -> str:
    """Return the shardings of an operation's results as text; empty if none has a sharding."""
    shardings = [(value, value.sharding) for value in values]
    first_sharding = next((s for _, s in shardings if s), None)
    if first_sharding is None:
        return ""
    texts = []
    for value, sharding in shardings:
        each = sharding or Sharding.open(first_sharding.mesh, value.type.rank)
        texts.append(format_sharding(each, meshes[each.mesh]))
    return f"#sdy.sharding_per_value<[{', '.join(texts)}]>"
