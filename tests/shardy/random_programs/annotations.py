"""Operations of random programs that annotate or reshard values."""

from typing import Any

from shardir import ops as ops  # declares the operations
from shardir.ir.operation import Symbol
from shardir.ops.communication.annotations import DIRECTIONS
from shardir.stablehlo.writing.attributes import format_tensor
from tests.shardy.random_programs.program_builder import ProgramBuilder


def propagation_barrier(m: ProgramBuilder) -> Any:
    return m.b.propagation_barrier(m.any(), direction=Symbol(m.random.choice(DIRECTIONS)))


def reshard(m: ProgramBuilder) -> Any:
    x = m.any()
    return m.b.reshard(x, sharding=m.sharding(x.type.shape))


def transfer(m: ProgramBuilder) -> Any:
    """Add a copy to another memory, which has no counterpart, or another elementwise custom
    call.
    """
    x = m.any()
    names = ("MoveToHost", "MoveToDevice", "annotate_device_placement", "LayoutConstraint")
    name = f"stablehlo.custom_call @{m.random.choice(names)}"
    return m.b.opaque(
        x,
        operation=name,
        head=f"{name}(%)",
        attributes="",
        types=f": ({format_tensor(x.type)}) -> {format_tensor(x.type)}",
        pointwise=True,
        result=x.type,
    )
