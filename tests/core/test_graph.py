"""Blocks as graphs: uses, the critical path, and drawings."""

import os
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import networkx as nx
import pytest
from hypothesis import given

from shardir.errors import DrawError
from shardir.graph import build_graph, critical_path, to_dot, to_svg
from shardir.ir.module import Module, Op
from shardir.text.parser import parse
from tests.programs.strategies import any_modules

PROGRAM = """\
func @f(
  %x: f32[4],
  %p: bool[],
) -> (f32[4]) {
  %a = exp(%x) : f32[4]
  %b = mul(%a, %a) : f32[4]
  %c = neg(%x) : f32[4]
  %d = case(%p) : f32[4] {
    %e = transpose(%c, perm=[0]) : f32[4]
    yield %e
  } {
    yield %x
  }
  %f = add(%b, %d) : f32[4]
  return %f
}
"""


def names(path: list[Op]) -> list[str]:
    return [op.result.name for op in path]


def test_edges_lead_from_definitions_to_uses() -> None:
    block = parse(PROGRAM).main.body
    x, p = block.params
    a, b, c, d, f = block.ops
    graph = build_graph(block)

    assert list(graph) == [x, p, a, b, c, d, f]
    assert set(graph.edges) == {(x, a), (a, b), (x, c), (p, d), (c, d), (x, d), (b, f), (d, f)}
    assert graph.edges[a, b]["values"] == (a.result,)


def test_captured_values_are_nodes_of_an_inner_block() -> None:
    block = parse(PROGRAM).main.body
    c, d = block.ops[2:4]

    assert list(build_graph(d.blocks[0])) == [c.result, *d.blocks[0].ops]


def test_values_between_two_operations_share_an_edge() -> None:
    text = """\
func @f(
  %x: f32[4],
) -> (f32[4]) {
  %a, %b = optimization_barrier(%x, %x) : f32[4], f32[4]
  %c = add(%b, %a) : f32[4]
  return %c
}
"""
    barrier, add = parse(text).main.body.ops
    graph = build_graph(parse(text).main.body)

    assert [len(values) for *_, values in graph.edges.data("values")] == [1, 2]
    assert barrier.results == tuple(reversed(add.operands))


@given(any_modules())
def test_the_graph_of_a_program_has_no_cycles(module: Module) -> None:
    graph = build_graph(module.main.body)
    order = {node: i for i, node in enumerate(graph)}

    assert nx.is_directed_acyclic_graph(graph)
    assert all(order[a] < order[b] for a, b in graph.edges)


def test_the_critical_path_is_the_heaviest() -> None:
    block = parse(PROGRAM).main.body

    assert names(critical_path(block, lambda op: 1)) == ["a", "b", "f"]
    assert names(critical_path(block, lambda op: 5 if op.name == "case" else 1)) == ["c", "d", "f"]
    assert critical_path(parse("func @f() -> () { return }").main.body, lambda op: 1) == []


def test_edges_show_shardings() -> None:
    text = """\
mesh @mesh = [data=4]

func @f(
  %x: f32[8@data],
) -> (f32[8]) {
  %y = exp(%x) : f32[8@data]
  return %y
}
"""
    lines = to_dot(parse(text)).splitlines()
    color = 'color="#0a4a99", fontcolor="#0a4a99"'
    assert f'  n0 [label="%x: f32[8@data]", shape=ellipse, {color}]' in lines
    assert f'  n0 -> n1 [label="%x: f32[8@data]", {color}]' in lines
    assert f'  n1 -> n2 [label="%y: f32[8@data]", {color}]' in lines


@given(any_modules())
def test_no_path_is_heavier_than_the_critical_path(module: Module) -> None:
    block = module.main.body
    path = critical_path(block, lambda op: len(op.name))
    graph = build_graph(block)

    assert all(graph.has_edge(a, b) for a, b in pairwise(path))
    for node in graph:
        for user in graph.successors(node):
            graph.edges[node, user]["weight"] = len(user.name)
    longest = nx.dag_longest_path_length(graph) if graph.size() else 0
    alone = max((len(op.name) for op in block.ops), default=0)
    weight = sum(len(op.name) for op in path)
    assert max(alone, longest) <= weight


def test_the_text_for_graphviz() -> None:
    assert (
        to_dot(parse(PROGRAM))
        == """\
digraph {
  node [shape=box, fontname="monospace"]
  edge [fontname="monospace"]
  n0 [label="%x: f32[4]", shape=ellipse]
  n1 [label="%p: bool[]", shape=ellipse]
  n2 [label="exp"]
  n3 [label="mul"]
  n4 [label="neg"]
  subgraph cluster_n5 {
    label="case"
    subgraph cluster_n6 {
      label=""
      n7 [label="transpose(perm=[0])"]
      n8 [label="yield", shape=ellipse]
    }
    subgraph cluster_n9 {
      label=""
      n10 [label="yield", shape=ellipse]
    }
    n5 [label="case"]
  }
  n11 [label="add"]
  n12 [label="return", shape=ellipse]
  n0 -> n2 [label="%x: f32[4]"]
  n2 -> n3 [label="%a: f32[4]"]
  n2 -> n3 [label="%a: f32[4]"]
  n0 -> n4 [label="%x: f32[4]"]
  n4 -> n7 [label="%c: f32[4]"]
  n7 -> n8 [label="%e: f32[4]"]
  n0 -> n10 [label="%x: f32[4]"]
  n1 -> n5 [label="%p: bool[]"]
  n3 -> n11 [label="%b: f32[4]"]
  n5 -> n11 [label="%d: f32[4]"]
  n11 -> n12 [label="%f: f32[4]"]
}
"""
    )


def test_repeated_layers_are_clusters() -> None:
    layer = """\
  %a{0} = exp(%x{0}) : f32[4]
  %b{0} = mul(%a{0}, %a{0}) : f32[4]
  %c{0} = neg(%b{0}) : f32[4]
  %x{1} = add(%c{0}, %x{0}) : f32[4]
"""
    body = "".join(layer.format(i, i + 1) for i in range(4))
    drawn = to_dot(parse(f"func @f(\n  %x0: f32[4],\n) -> (f32[4]) {{\n{body}  return %x4\n}}\n"))
    clusters = drawn.split("subgraph ")[1:]
    for number, cluster in enumerate(clusters):
        inside, _, _ = cluster.partition("}")
        assert f'label="layers 0, layer {number}"' in inside
        assert [line.split("label=")[1] for line in inside.splitlines()[2:-1]] == [
            '"exp"]', '"mul"]', '"neg"]', '"add"]'
        ]  # fmt: skip
    assert len(clusters) == 4


def test_collectives_are_highlighted_and_quotes_are_escaped() -> None:
    text = """\
mesh @m = [x=2]

spmd func @f(
  %"a \\"b": f32[4] of f32[8@x],
) -> (f32[4] of f32[4]) {
  %c = all-reduce(%"a \\"b", axes=[x], op=add) : f32[4]
  return %c
}
"""
    drawn = to_dot(parse(text))

    assert 'label="all-reduce(axes=[x], op=add)", style=filled' in drawn
    assert 'n0 [label="%\\"a \\\\\\"b\\": f32[4]", shape=ellipse]' in drawn


def fake_graphviz(folder: Path, script: str) -> None:
    dot = folder / "dot"
    dot.write_text(f"#!/bin/sh\n{script}\n", "utf-8")
    dot.chmod(0o755)


def test_svg_comes_from_graphviz(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_graphviz(tmp_path, 'test "$1" = -Tsvg && cat >/dev/null && echo "<svg/>"')
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    assert ElementTree.fromstring(to_svg(parse(PROGRAM))).tag == "svg"


def test_the_error_without_graphviz_names_the_alternative(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(DrawError) as error:
        to_svg(parse(PROGRAM))

    assert str(error.value) == (
        "Graphviz draws the graph, but there is no program called 'dot'; "
        "install Graphviz, or write the text of to_dot to a file and draw it elsewhere"
    )


def test_errors_of_graphviz_are_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_graphviz(tmp_path, "cat >/dev/null; echo no such font >&2; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(DrawError) as error:
        to_svg(parse(PROGRAM))

    assert str(error.value) == "Graphviz could not draw the graph: no such font"
