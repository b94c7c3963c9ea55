"""Propagation edges: the axes that a step of propagation moved between tensors of an operation."""

from collections.abc import Iterable
from typing import NamedTuple

from shardir.ir.mesh import Mesh
from shardir.ir.sharding import Axis
from shardir.stablehlo.writing.attributes import format_mlir_axis


class EdgeTensor(NamedTuple):
    """A tensor of an operation; operands precede results."""

    is_result: bool
    number: int

    def __str__(self) -> str:
        return f"{'result' if self.is_result else 'operand'}-{self.number}"


class AxisEdge(NamedTuple):
    """An axis moved from a tensor to another one in a step."""

    step: int
    axis: Axis
    source: EdgeTensor
    target: EdgeTensor


def format_edges(edges: Iterable[AxisEdge], mesh: Mesh) -> str:
    """Return edges as the attribute `#sdy.propagation_edges<[...]>`."""
    first: dict[tuple[Axis, EdgeTensor, EdgeTensor], int] = {}
    for edge in edges:
        first.setdefault((edge.axis, edge.source, edge.target), edge.step)
    steps: dict[int, dict[tuple[Axis, EdgeTensor], list[EdgeTensor]]] = {}
    for (axis, source, target), step in first.items():
        steps.setdefault(step, {}).setdefault((axis, source), []).append(target)
    texts = []
    for step, moves in sorted(steps.items()):
        entries = ", ".join(
            f"{{{format_mlir_axis(axis, mesh)} = {source} -> "
            f"[{', '.join(map(str, sorted(targets)))}]}}"
            for (axis, source), targets in sorted(
                moves.items(), key=lambda move: (move[0][0].name, move[0][0].pre, move[0])
            )
        )
        texts.append(f"{{step-{step} = [{entries}]}}")
    return f"#sdy.propagation_edges<[{', '.join(texts)}]>"
