"""The stages of a report as graphs for Model Explorer (google-ai-edge/model-explorer).

Each stage is a graph. A node is an operation; its attributes are its text, its source line and its
reason. Repeated layers are groups, which Model Explorer shows collapsed at first.
"""

import json
import re
from collections.abc import Iterator, Sequence

from shardir.display.repetitions import Repetition
from shardir.frontend.report.records import DefinitionRecord, ReportData, StageRecord
from shardir.frontend.report.text import format_location
from shardir.text.literals import STRING, VALUE_NAME, unquote_string

_NAME = re.compile(VALUE_NAME)
_NAME_OR_STRING = re.compile(rf"{VALUE_NAME}|{STRING}")
_OPERATION = re.compile(
    rf"\s*(?:({VALUE_NAME}(?:, {VALUE_NAME})*) = )?([\w-]+)"
    rf'(?:\(((?:[^"]|{STRING})*?)\))?(?: : (.*?))?(?: \{{)?$'
)
_TERMINATOR = re.compile(r"\s*(return|yield)\b")
_PARAMETERS = re.compile(rf"\s*(?:({VALUE_NAME}: .*?),?|\(({VALUE_NAME}: .*)\) =>)$")
_PARAMETER = re.compile(rf"({VALUE_NAME}): (.*)")
_TYPE_PART = re.compile(rf"{STRING}|[\[(]|[\])]|, ")
_FUNCTION = re.compile(rf"(?:spmd )?func @(?:([\w.]+)|({STRING}))\(")
COLLECTIVE_COLOR, PARAMETER_COLOR = "#ffd6ec", "#e8eef7"


def to_model_explorer(data: ReportData) -> str:
    """Return a graph collection of all stages as JSON."""
    definitions = {(row.function, row.name): row for row in data.definitions}
    graphs = [
        {"id": f"{number:02} {stage.name}", "nodes": list(_nodes(data, stage, definitions))}
        for number, stage in enumerate(data.stages)
        if stage.operations
    ]
    whole = {"label": data.name, "graphs": graphs, "graphSorting": "name_asc"}
    return json.dumps(whole, separators=(",", ":"), ensure_ascii=True) + "\n"


Node = dict[str, object]


def _nodes(
    data: ReportData, stage: StageRecord, definitions: dict[tuple[str, str], DefinitionRecord]
) -> Iterator[Node]:
    """Yield a node for each parameter and each operation of a stage."""
    collectives = {row.value for row in data.collectives}
    groups = list(_groups(stage))
    makers: dict[str, tuple[str, str]] = {}
    function = ""
    for number, text_number in enumerate(stage.lines):
        line = data.texts[text_number]
        if found := _FUNCTION.match(line):
            function, makers = found[1] or unquote_string(found[2]), {}
            continue
        if parameters := _PARAMETERS.match(line):
            listed = map(_PARAMETER.fullmatch, _split(parameters[1] or parameters[2]))
            typed = {each[1]: each[2] for each in listed if each}
            makers.update((name, (f"{number}", f"{i}")) for i, name in enumerate(typed))
            attributes = [("type", type) for type in typed.values()]
            yield _node(
                number, ", ".join(typed), groups[number], attributes, [], [*typed.values()],
                {"backgroundColor": PARAMETER_COLOR},
            )  # fmt: skip
            continue
        if terminator := _TERMINATOR.match(line):
            sources = [makers[name] for name in _NAME.findall(line) if name in makers]
            yield _node(number, terminator[1], groups[number], [("text", line.strip())], sources)
            continue
        operation = _OPERATION.match(line)
        if operation is None or function == "" or line.startswith((")", "}", "mesh")):
            continue
        results = _NAME.findall(operation[1] or "")
        attributes = [("text", line.strip())]
        definition = definitions.get((function, results[0])) if results else None
        if definition is not None and definition.location is not None:
            attributes.append(("line", format_location(data, definition.location)))
        if definition is not None and definition.why:
            attributes.append(("why", definition.why))
        names = _NAME_OR_STRING.findall(operation[3] or "")
        sources = [makers[name] for name in names if name in makers]
        for output, name in enumerate(results):
            makers[name] = f"{number}", f"{output}"
        types = _split(operation[4] or "")
        is_collective = bool(results) and results[0] in collectives
        color = {"backgroundColor": COLLECTIVE_COLOR} if is_collective else None
        label = f"{operation[2]} {results[0]}" if results else operation[2]
        yield _node(number, label, groups[number], attributes, sources, types, color)


def _node(
    number: int,
    label: str,
    namespace: str,
    attributes: Sequence[tuple[str, str]],
    sources: Sequence[tuple[str, str]],
    types: Sequence[str] = (),
    style: dict[str, str] | None = None,
) -> Node:
    node: Node = {
        "id": f"{number}",
        "label": label,
        "namespace": namespace,
        "attrs": [{"key": key, "value": value} for key, value in attributes],
        "incomingEdges": [
            {"sourceNodeId": source, "sourceNodeOutputId": output, "targetNodeInputId": f"{i}"}
            for i, (source, output) in enumerate(sources)
        ],
        "outputsMetadata": [
            {"id": f"{i}", "attrs": [{"key": "tensor_shape", "value": type}]}
            for i, type in enumerate(types)
        ],
    }
    if style:
        node["style"] = style
    return node


def _groups(stage: StageRecord) -> Iterator[str]:
    """Yield the group of each line: the copy of the repeated layer that it belongs to."""
    names = [""] * len(stage.lines)
    for number, fold in enumerate(stage.folds):
        repetition = Repetition(fold.start, fold.length, fold.unit, fold.count, fold.exceptions)
        for copy, (at, length) in enumerate(repetition.parts()):
            names[at : at + length] = [f"layers {number}/layer {copy}"] * length
    yield from names


def _split(text: str) -> list[str]:
    """Return the types, or the names with types, of a list: commas inside of brackets separate
    dimensions and axes."""
    parts, begin, depth = [], 0, 0
    for found in _TYPE_PART.finditer(text):
        if found[0] == ", " and depth == 0:
            parts.append(text[begin : found.start()])
            begin = found.end()
        elif len(found[0]) == 1:
            depth += 1 if found[0] in "[(" else -1
    return [*parts, text[begin:]] if text else []
