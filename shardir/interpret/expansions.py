"""Operations that the interpreter replaces by other operations, which define their meaning."""

from collections.abc import Callable

from shardir.ir.module import Block, Op
from shardir.ir.operation import OpSpec

Expansion = Callable[[Op], Block]
"""Return a block with the meaning of an operation; its parameters are the operands."""

EXPANSIONS: dict[str, Expansion] = {}
"""The expansions by the name of the operation."""


def register_expansion(spec: OpSpec, expansion: Expansion) -> None:
    """Let the interpreter run the block of `expansion` for each operation `spec`."""
    EXPANSIONS[spec.name] = expansion
