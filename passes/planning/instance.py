"""Read planning problems in the format of the IOPDDL contest: JSON, possibly compressed by gzip."""

import gzip
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from shardir.errors import count_noun, os_error_reason
from shardir.passes.planning.problem import FORBIDDEN, Edge, Ints, PlanningError, PlanningProblem

MAX_NUMBER = 2**62
"""Integers of an instance are less than this, so that sums of two fit into 64 bits."""
MAX_STRATEGIES = 1 << 16
"""The maximum number of strategies of a node."""


def read_problem(path: str | Path) -> PlanningProblem:
    """Return the problem of a file; raise `PlanningError` that names the wrong entry."""
    try:
        data = Path(path).read_bytes()
        text = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
        content = json.loads(text, parse_constant=_reject_constant)
    except (OSError, EOFError, UnicodeDecodeError) as error:
        reason = os_error_reason(error)
        raise PlanningError(f"cannot read {str(path)!r}: {reason}") from None
    except (ValueError, RecursionError) as error:
        raise PlanningError(f"{str(path)!r} is not valid JSON: {error}") from None
    return problem_of_json(content)


def _reject_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number of JSON")


def problem_of_json(content: object) -> PlanningProblem:
    """Return the problem of parsed JSON; raise `PlanningError` that names the wrong entry."""
    problem = _entry(content, "problem", "the instance")
    nodes = _entry(problem, "nodes", "problem")
    edges = _entry(problem, "edges", "problem")
    costs = _rows(nodes, "costs", "problem.nodes")
    usages = _rows(nodes, "usages", "problem.nodes")
    intervals = _rows(nodes, "intervals", "problem.nodes")
    for name, rows in (("usages", usages), ("intervals", intervals)):
        if len(rows) != len(costs):
            raise PlanningError(
                f"problem.nodes.{name} has {count_noun(len(rows), 'entry', 'entries')}, and costs "
                f"has {len(costs)}"
            )
    node_costs, node_usages = [], []
    for node, row in enumerate(costs):
        path = f"problem.nodes.costs[{node}]"
        node_costs.append(_costs(row, path))
        if not 0 < len(node_costs[-1]) <= MAX_STRATEGIES:
            raise PlanningError(
                f"{path} has {len(row)} strategies; it must have 1 to {MAX_STRATEGIES}"
            )
        path = f"problem.nodes.usages[{node}]"
        node_usages.append(_integers(usages[node], path, len(row)))
    lives = np.array(
        [_integers(row, f"problem.nodes.intervals[{n}]", 2) for n, row in enumerate(intervals)],
        np.int64,
    ).reshape(-1, 2)
    limit = problem.get("usage_limit")
    if limit is not None:
        (limit,) = map(int, _integers([limit], "problem.usage_limit"))
    name = problem.get("name", "")
    return PlanningProblem(
        name if isinstance(name, str) else "",
        lives[:, 0],
        lives[:, 1],
        node_costs,
        node_usages,
        _merge_edges(edges, node_costs),
        limit,
    )


def _merge_edges(edges: Mapping[str, Any], node_costs: Sequence[Ints]) -> list[Edge]:
    """Return one edge for each pair of nodes: the costs of parallel edges are added."""
    pairs = _rows(edges, "nodes", "problem.edges")
    costs = _rows(edges, "costs", "problem.edges")
    if len(pairs) != len(costs):
        raise PlanningError(
            f"problem.edges.costs has {count_noun(len(costs), 'entry', 'entries')}, and nodes has "
            f"{len(pairs)}"
        )
    merged: dict[tuple[int, int], Ints] = {}
    for number, (pair, row) in enumerate(zip(pairs, costs, strict=True)):
        path = f"problem.edges.nodes[{number}]"
        if len(pair) != 2:
            raise PlanningError(
                f"{path} joins {count_noun(len(pair), 'node')}; edges of two nodes are supported"
            )
        a, b = map(int, _integers(pair, path, 2))
        if not (0 <= a < len(node_costs) and 0 <= b < len(node_costs)) or a == b:
            raise PlanningError(
                f"{path} is [{a}, {b}]; it must be two different nodes of 0 to "
                f"{len(node_costs) - 1}"
            )
        shape = len(node_costs[a]), len(node_costs[b])
        table = _costs(row, f"problem.edges.costs[{number}]", math.prod(shape)).reshape(shape)
        key, table = ((a, b), table) if a < b else ((b, a), table.T)
        merged[key] = np.minimum(merged[key] + table, FORBIDDEN) if key in merged else table
    return [Edge(a, b, table) for (a, b), table in merged.items()]


def _entry(content: object, name: str, owner: str) -> Mapping[str, Any]:
    if not isinstance(content, dict) or not isinstance(content.get(name), dict):
        raise PlanningError(
            f"{owner} has no object {name!r}; the format is that of the IOPDDL contest"
        )
    found: Mapping[str, Any] = content[name]
    return found


def _rows(content: Mapping[str, Any], name: str, owner: str) -> Sequence[Sequence[Any]]:
    rows = content.get(name)
    if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
        raise PlanningError(f"{owner}.{name} must be a list of lists")
    return rows


def _costs(row: Sequence[Any], path: str, count: int | None = None) -> Ints:
    return np.minimum(_integers(row, path, count), FORBIDDEN)


def _integers(row: Sequence[Any], path: str, count: int | None = None) -> Ints:
    if count is not None and len(row) != count:
        raise PlanningError(
            f"{path} has {count_noun(len(row), 'entry', 'entries')}; it must have {count}"
        )
    for position, number in enumerate(row):
        if type(number) is not int or not 0 <= number < MAX_NUMBER:
            shown = str(number) if type(number) in (int, float) else type(number).__name__
            raise PlanningError(
                f"{path}[{position}] is {shown}; it must be an integer of 0 to 2**62 - 1"
            )
    return np.array(row, np.int64)
