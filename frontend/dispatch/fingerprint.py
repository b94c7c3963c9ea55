"""Fingerprints of modules, which ignore names and locations."""

from collections.abc import Hashable
from typing import Any

from shardir.ir.module import Block, Module, Value


def module_fingerprint(module: Module) -> Hashable:
    """Return a key that is equal for modules with the same operations, types and shardings."""
    numbers: dict[Value, int] = {}
    parts: list[Any] = [module.meshes]
    for function in module.functions:
        _append_block(function.body, numbers, parts)
        parts.append(function.result_shardings)
    return tuple(parts)


def _append_block(block: Block, numbers: dict[Value, int], parts: list[Any]) -> None:
    for param in block.params:
        numbers[param] = len(numbers)
        parts.append((param.type, param.sharding))
    for op in block.ops:
        parts.append(op.spec)
        parts.append(tuple([numbers[v] for v in op.operands]))
        for name, value in op.attrs.items():
            parts.append(name)
            parts.append(_attribute_key(value))
        for inner in op.blocks:
            _append_block(inner, numbers, parts)
        for result in op.results:
            numbers[result] = len(numbers)
            parts.append((result.type, result.sharding))
    parts.append(tuple([numbers[v] for v in block.returns]))


def _attribute_key(value: Any) -> Any:
    """Return numbers as text, because zeros are signed and NaN is not equal to itself."""
    if isinstance(value, (float, complex)):
        return type(value), repr(value)
    if isinstance(value, tuple):
        return tuple(map(_attribute_key, value))
    return value
