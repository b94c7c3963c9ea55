"""Reports as files of other viewers: trace events, and graphs of Model Explorer."""

import json
from typing import Any

from tests.frontend.report.programs import deep_text, mlp_report, report_of_text

NODE_FIELDS = {
    "id", "label", "namespace", "attrs", "incomingEdges", "outputsMetadata", "style",
}  # fmt: skip
"""Fields of `GraphNode` of Model Explorer that are written."""


def test_trace_events_have_a_lane_for_each_axis_and_the_memory() -> None:
    report = mlp_report()
    schedule = report.data.schedule
    whole: dict[str, Any] = json.loads(report.to_trace_events())
    events = whole["traceEvents"]
    names = [event["args"]["name"] for event in events if event["name"] == "thread_name"]
    assert names == list(schedule.lanes) == ["compute", "data", "model"]
    boxes = [event for event in events if event["ph"] == "X"]
    assert [(e["ts"] * 1000, e["dur"] * 1000, e["tid"]) for e in boxes] == [
        (box.start, box.duration, box.lane) for box in schedule.boxes
    ]
    assert all(event["args"]["line"].startswith("mlp.ir:") for event in boxes)
    memory = [event["args"]["bytes"] for event in events if event["ph"] == "C"]
    assert max(memory) == schedule.peak
    sent = [event["args"].get("bytes sent", 0) for event in boxes]
    assert sum(sent) == report.data.total.sent


def test_graphs_connect_operations_with_the_values_that_they_use() -> None:
    report = report_of_text(deep_text(4))
    whole: dict[str, Any] = json.loads(report.to_model_explorer())
    assert set(whole) == {"label", "graphs", "graphSorting"}
    assert [graph["id"] for graph in whole["graphs"]] == [
        f"{i:02} {stage.name}" for i, stage in enumerate(report.data.stages)
    ]
    for graph, stage in zip(whole["graphs"], report.data.stages, strict=True):
        nodes = {node["id"]: node for node in graph["nodes"]}
        assert len(nodes) == len(graph["nodes"])
        assert all(set(node) <= NODE_FIELDS for node in nodes.values())
        edges = [edge for node in nodes.values() for edge in node["incomingEdges"]]
        assert edges
        assert all(edge["sourceNodeId"] in nodes for edge in edges)
        operations = [node for node in nodes.values() if not node["label"].startswith("%")]
        assert len(operations) == stage.operations + 1  # The function returns.
    traced = {node["label"]: node for node in whole["graphs"][0]["nodes"]}
    assert traced["dot %a1"]["namespace"] == "layers 0/layer 1"
    assert traced["tanh %h2"]["incomingEdges"] == [
        {
            "sourceNodeId": traced["dot %a2"]["id"],
            "sourceNodeOutputId": "0",
            "targetNodeInputId": "0",
        }
    ]
    types = [each["attrs"][0]["value"] for each in traced["dot %a1"]["outputsMetadata"]]
    assert types == ["f32[32, 64]"]


def test_nested_blocks_are_in_the_graph() -> None:
    text = """\
func @f(%x: f32[4], %w: f32[4]) -> (f32[4]) {
  %y = scan(%x, carries=1, length=3) : f32[4] {
    (%c: f32[4]) =>
    %z = mul(%c, %w) : f32[4]
    yield %z
  }
  return %y
}
"""
    report = report_of_text(text)
    nodes = json.loads(report.to_model_explorer())["graphs"][0]["nodes"]
    labels = [node["label"] for node in nodes]
    assert "mul %z" in labels
    assert "scan %y" in labels


def test_graphs_connect_all_parameters_of_blocks_and_quoted_names() -> None:
    text = """\
mesh @m = [x=2, y=2]

func @"f(x)"(%"a, (\\"b\\"": f32[8, 8@(x, y)], %größe: i32[]) -> (f32[8, 8], i32[]) {
  %"c, d", %n = scan(%"a, (\\"b\\"", %größe, carries=2, length=3) : f32[8, 8], i32[] {
    (%carry: f32[8, 8@(x, y)], %step: i32[]) =>
    %next = add(%step, %step) : i32[]
    yield %carry, %next
  }
  return %"c, d", %n
}
"""
    nodes = json.loads(report_of_text(text).to_model_explorer())["graphs"][0]["nodes"]
    found = {
        node["label"]: (
            [output["attrs"][0]["value"] for output in node["outputsMetadata"]],
            [(edge["sourceNodeId"], edge["sourceNodeOutputId"]) for edge in node["incomingEdges"]],
        )
        for node in nodes
    }
    (first, second, scan, block, add, *_) = (node["id"] for node in nodes)
    assert found == {
        '%"a, (\\"b\\""': (["f32[8, 8@(x, y)]"], []),
        "%größe": (["i32[]"], []),
        'scan %"c, d"': (["f32[8, 8]", "i32[]"], [(first, "0"), (second, "0")]),
        "%carry, %step": (["f32[8, 8@(x, y)]", "i32[]"], []),
        "add %next": (["i32[]"], [(block, "1"), (block, "1")]),
        "yield": ([], [(block, "0"), (add, "0")]),
        "return": ([], [(scan, "0"), (scan, "1")]),
    }
    assert all(node["attrs"] for node in nodes)
