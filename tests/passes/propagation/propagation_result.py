"""Result of propagation as one sharding per value."""

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
