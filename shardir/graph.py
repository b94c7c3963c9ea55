"""A block as a networkx graph, for analysis and drawing; the graph is not a program.

Nodes are the operations of the block and the values that enter it (parameters and captured values).
An edge connects the definition of a value with an operation that uses it directly or in one of its
blocks; the edge attribute `values` holds the values.
"""

import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from itertools import count

import networkx as nx

from shardir.display.axis_colors import INKS, NUM_COLORS
from shardir.display.repetitions import find_repetitions
from shardir.errors import DrawError
from shardir.ir.module import Block, Module, Op, Value
from shardir.text.printer import Printer, unique_names

Node = Op | Value


def build_graph(block: Block) -> nx.DiGraph:
    """Return the graph of a block, with operations in block order, which is topological."""
    graph: nx.DiGraph = nx.DiGraph()
    maker: dict[Value, Node] = {value: value for value in (*block.params, *block.captures())}
    graph.add_nodes_from(maker)
    for op in block.ops:
        graph.add_node(op)
        for value in dict.fromkeys(op.uses()):
            producer = maker[value]
            if graph.has_edge(producer, op):
                graph.edges[producer, op]["values"] += (value,)
            else:
                graph.add_edge(producer, op, values=(value,))
        maker.update(dict.fromkeys(op.results, op))
    return graph


def critical_path(block: Block, weight: Callable[[Op], float]) -> list[Op]:
    """Return the critical path: the chain of dependent operations with the largest total weight.

    The total weight is a lower bound on the time with unlimited parallelism. Of two paths with
    equal weight, the one that comes first in the block is returned.
    """
    graph = build_graph(block)
    longest: dict[Op, float] = {}
    before: dict[Op, Op | None] = {}
    for op in block.ops:
        producers = [node for node in graph.predecessors(op) if isinstance(node, Op)]
        before[op] = max(producers, key=longest.__getitem__, default=None)
        last = before[op]
        longest[op] = weight(op) + (longest[last] if last else 0)
    path: list[Op] = []
    step = max(longest, key=longest.__getitem__, default=None)
    while step is not None:
        path.append(step)
        step = before[step]
    return path[::-1]


def to_dot(module: Module) -> str:
    """Return the first function as Graphviz DOT: operations as boxes, blocks and repeated layers as
    clusters, and the types and shardings of values on edges."""
    return "\n".join(["digraph {", *_Drawing(module).lines(), "}\n"])


def to_svg(module: Module) -> str:
    """Return the first function as SVG drawn by Graphviz; raise `DrawError` without Graphviz."""
    dot = shutil.which("dot")
    if dot is None:
        raise DrawError(
            "Graphviz draws the graph, but there is no program called 'dot'; "
            "install Graphviz, or write the text of to_dot to a file and draw it elsewhere"
        )
    drawn = subprocess.run(
        [dot, "-Tsvg"], input=to_dot(module), capture_output=True, text=True, check=False
    )
    if drawn.returncode:
        raise DrawError(f"Graphviz could not draw the graph: {drawn.stderr.strip()}")
    return drawn.stdout


class _Drawing:
    """Writes the lines of a drawing and numbers nodes in program order."""

    def __init__(self, module: Module) -> None:
        self.body = module.main.body
        self.names = unique_names(module.main)
        self.printer = Printer(module.meshes)
        self.number = count()
        names = dict.fromkeys(name for mesh in module.meshes for name, _ in mesh.axes)
        self.axes = {name: number for number, name in enumerate(names)}
        self.node: dict[Value, str] = {}
        # The edges follow all clusters: a statement in a cluster adds its nodes to the cluster.
        self.edges: list[str] = []

    def lines(self) -> Iterator[str]:
        yield '  node [shape=box, fontname="monospace"]'
        yield '  edge [fontname="monospace"]'
        yield from self.block(self.body, "return", "  ")
        yield from self.edges

    def block(self, block: Block, end: str, indent: str) -> Iterator[str]:
        for param in block.params:
            self.node[param] = node = self.fresh()
            text = self.printer.param(param, self.names)
            yield f"{indent}{node} [label={_quote(text)}, shape=ellipse{self.color(param)}]"
        layers = self.layers(block.ops)
        for number, op in enumerate(block.ops):
            layer = layers.get(number)
            if layer is not None and layers.get(number - 1) != layer:
                yield f"{indent}subgraph cluster_{self.fresh()} {{"
                yield f"{indent}  label={_quote(layer)}"
            yield from self.op(op, f"{indent}  " if layer is not None else indent)
            if layer is not None and layers.get(number + 1) != layer:
                yield f"{indent}}}"
        node = self.fresh()
        yield f"{indent}{node} [label={_quote(end)}, shape=ellipse]"
        self.edges += (self.edge(value, node) for value in block.returns)

    def layers(self, ops: Sequence[Op]) -> dict[int, str]:
        """Return the layer of each operation that belongs to one: layers differ only in names.

        A group of other operations between two layers is a layer too.
        """
        kinds: dict[tuple[tuple[str, ...], ...], int] = {}
        numbers = []
        for op in ops:
            line = self.printer.op(op, self.names)
            inner = tuple(each.name for block in op.blocks for each in block.walk())
            kind = (line.name,), tuple(line.attrs), tuple(line.types), inner
            numbers.append(kinds.setdefault(kind, len(kinds)))
        found: dict[int, str] = {}
        for group, repetition in enumerate(find_repetitions(numbers)):
            for copy, (start, length) in enumerate(repetition.parts()):
                name = f"layers {group}, layer {copy}"
                found.update(dict.fromkeys(range(start, start + length), name))
        return found

    def op(self, op: Op, indent: str) -> Iterator[str]:
        node = self.fresh()
        line = self.printer.op(op, self.names)
        text = f"{line.name}({', '.join(line.attrs)})" if line.attrs else line.name
        style = ", style=filled, fillcolor=lightblue" if op.spec.collective else ""
        if op.blocks:
            yield f"{indent}subgraph cluster_{node} {{"
            yield f"{indent}  label={_quote(op.name)}"
            for block in op.blocks:
                yield f"{indent}  subgraph cluster_{self.fresh()} {{"
                yield f'{indent}    label=""'
                yield from self.block(block, "yield", f"{indent}    ")
                yield f"{indent}  }}"
            yield f"{indent}  {node} [label={_quote(text)}{style}]"
            yield f"{indent}}}"
        else:
            yield f"{indent}{node} [label={_quote(text)}{style}]"
        self.edges += (self.edge(value, node) for value in op.operands)
        self.node.update(dict.fromkeys(op.results, node))

    def edge(self, value: Value, to: str) -> str:
        """Return an edge with the type and the sharding of its value."""
        text = self.printer.param(value, self.names)
        return f"  {self.node[value]} -> {to} [label={_quote(text)}{self.color(value)}]"

    def color(self, value: Value) -> str:
        """Return the attributes that color a value by the first axis that shards it."""
        axis = next(value.sharding.used_axes(), None) if value.sharding else None
        number = self.axes.get(axis.name) if axis else None
        if number is None:
            return ""
        ink = INKS[number % NUM_COLORS]
        return f', color="{ink}", fontcolor="{ink}"'

    def fresh(self) -> str:
        return f"n{next(self.number)}"


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
