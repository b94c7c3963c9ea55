"""Result of propagation as one sharding per value."""

import re
from collections.abc import Sequence
from typing import Any

from shardir.ir.module import Block, Module
from shardir.passes import Propagate
from shardir.text.parser import parse
from shardir.text.printer import Printer
from shardir.verify.verifier import verify

MESH = "mesh @m = [x=2, y=2, z=4]\n\n"


def propagate(text: str, **options: Any) -> Module:
    """Return the program in `text` after propagation."""
    module = Propagate(**options)(parse(text if "mesh @" in text else MESH + text))
    verify(module)
    return module


def types_by_name(text: str, **options: Any) -> dict[str, str]:
    """Return the type of every value with its sharding, by name; results of the function are
    `->0`, ...
    """
    module = propagate(text, **options)
    printer = Printer(module.meshes, False)
    types: dict[str, str] = {}

    def enter(block: Block) -> None:
        for value in block.values():
            types[value.name] = printer.sharded_type(value.type, value.sharding)
        for op in block.ops:
            for inner in op.blocks:
                enter(inner)

    enter(module.main.body)
    for i, (value, sharding) in enumerate(
        zip(module.main.body.returns, module.main.result_shardings, strict=True)
    ):
        types[f"->{i}"] = printer.sharded_type(value.type, sharding)
    return types


def operation(rule: str, operands: Sequence[str], result: str) -> str:
    """Return a program of one operation, `%r`, with a factor rule and operands `%p0`, `%p1`, ..."""
    names = [f"%p{i}" for i in range(len(operands))]
    params = "".join(f"  {name}: {type},\n" for name, type in zip(names, operands, strict=True))
    head = f"x.y {', '.join('%' for _ in names)}"
    attributes = f'operation="x.y", head="{head}", attributes="", types="", rule="{rule}"'
    shape = re.sub(r"@(\([^)]*\)\??|[^,\]]*)", "", result).partition("]")[0] + "]"
    return (
        f"func @f(\n{params}) -> ({shape}) {{\n"
        f"  %r = opaque({', '.join(names)}, {attributes}) : {result}\n  return %r\n}}\n"
    )


def types_of_operation(
    rule: str, operands: Sequence[str], result: str, **options: Any
) -> list[str]:
    """Return the types of the operands and of the result of `operation` after propagation."""
    types = types_by_name(operation(rule, operands, result), **options)
    return [*(types[f"p{i}"] for i in range(len(operands))), types["r"]]
