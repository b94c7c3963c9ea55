"""Planning problems: costs, peaks, lifetimes, and errors of files that are no problems."""

import gzip
import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardir.passes.planning.instance import problem_of_json, read_problem
from shardir.passes.planning.problem import FORBIDDEN, PlanningError
from shardir.passes.planning.solution import evaluate

EXAMPLE: dict[str, Any] = {
    "problem": {
        "name": "example",
        "nodes": {
            "intervals": [[30, 70], [40, 70], [50, 120], [110, 140], [110, 150]],
            "costs": [[15], [55, 65], [25, 45, 35], [85, 75], [95]],
            "usages": [[10], [25, 25], [15, 20, 15], [10, 10], [15]],
        },
        "edges": {
            "nodes": [[0, 1], [0, 2], [1, 3], [2, 4], [3, 4]],
            "costs": [[30, 40], [50, 10, 40], [90, 10, 20, 80], [60, 20, 30], [70, 60]],
        },
        "usage_limit": 50,
    }
}
"""The example of google/iopddl (Apache-2.0)."""


def example(**changes: Any) -> dict[str, Any]:
    """Return the example with other entries: `nodes__costs=...`."""
    content: dict[str, Any] = json.loads(json.dumps(EXAMPLE))
    for path, value in changes.items():
        *parts, last = path.split("__")
        entry = content["problem"]
        for part in parts:
            entry = entry[part]
        entry[last] = value
    return content


def test_the_cost_is_the_sum_over_nodes_and_edges() -> None:
    problem = problem_of_json(EXAMPLE)
    assert problem.cost_of([0, 0, 2, 0, 0]) == 545
    assert problem.cost_of([0, 0, 2, 1, 0]) == 445
    assert problem.peak_of([0, 0, 2, 1, 0]) == 50
    assert problem.peak_of([0, 0, 1, 1, 0]) == 55


def test_files_may_be_compressed(tmp_path: Path) -> None:
    path = tmp_path / "example.json.gz"
    path.write_bytes(gzip.compress(json.dumps(EXAMPLE).encode()))
    assert read_problem(path).cost_of([0, 0, 2, 1, 0]) == 445


def test_parallel_edges_add_up() -> None:
    content = example(edges__nodes=[[0, 1], [1, 0]], edges__costs=[[30, 40], [5, FORBIDDEN]])
    problem = problem_of_json(content)
    (edge,) = problem.edges
    assert edge.costs.tolist() == [[35, FORBIDDEN]]
    assert problem.cost_of([0, 1, 0, 0, 0]) is None


def test_an_empty_life_needs_no_memory() -> None:
    problem = problem_of_json(example(nodes__intervals=[[0, 0]] * 4 + [[5, 6]]))
    assert problem.peak_of([0] * 5) == 15
    assert [clique.tolist() for clique in problem.maximal_cliques()] == [[4]]


@pytest.mark.sample(3)
@pytest.mark.parametrize("seed", range(30))
def test_cliques_are_the_maximal_sets_of_living_nodes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    starts = rng.integers(0, 20, 9)
    lives = [[int(start), int(start + rng.integers(0, 8))] for start in starts]
    content = example(
        nodes__intervals=lives, nodes__costs=[[1]] * 9, nodes__usages=[[1]] * 9,
        edges__nodes=[], edges__costs=[],
    )  # fmt: skip
    problem = problem_of_json(content)
    alive = {frozenset(n for n, (a, b) in enumerate(lives) if a <= t < b) for t in range(30)}
    expected = {each for each in alive if each and not any(each < other for other in alive)}
    found = [frozenset(clique.tolist()) for clique in problem.maximal_cliques()]
    assert set(found) == expected
    assert len(found) == len(expected)
    assert problem.peak_of([0] * 9) == max(map(len, alive))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "the instance has no object 'problem'; the format is that of the IOPDDL contest"),
        (
            {"problem": {"nodes": []}},
            "problem has no object 'nodes'; the format is that of the IOPDDL contest",
        ),
        (example(nodes__costs=3), "problem.nodes.costs must be a list of lists"),
        (example(nodes__costs=[3]), "problem.nodes.costs must be a list of lists"),
        (
            example(nodes__usages=[[1]]),
            "problem.nodes.usages has 1 entry, and costs has 5",
        ),
        (
            example(nodes__costs=[[], [1], [1], [1], [1]]),
            "problem.nodes.costs[0] has 0 strategies; it must have 1 to 65536",
        ),
        (
            example(nodes__costs=[[1.5], [1], [1], [1], [1]]),
            "problem.nodes.costs[0][0] is 1.5; it must be an integer of 0 to 2**62 - 1",
        ),
        (
            example(nodes__costs=[["a"], [1], [1], [1], [1]]),
            "problem.nodes.costs[0][0] is str; it must be an integer of 0 to 2**62 - 1",
        ),
        (
            example(nodes__intervals=[[1]] * 5),
            "problem.nodes.intervals[0] has 1 entry; it must have 2",
        ),
        (
            example(edges__nodes=[[0, 1, 2]], edges__costs=[[1]]),
            "problem.edges.nodes[0] joins 3 nodes; edges of two nodes are supported",
        ),
        (
            example(edges__nodes=[[0, 5]], edges__costs=[[1]]),
            "problem.edges.nodes[0] is [0, 5]; it must be two different nodes of 0 to 4",
        ),
        (
            example(edges__nodes=[[5, 0]], edges__costs=[[1]]),
            "problem.edges.nodes[0] is [5, 0]; it must be two different nodes of 0 to 4",
        ),
        (
            example(edges__nodes=[[1, 1]], edges__costs=[[1]]),
            "problem.edges.nodes[0] is [1, 1]; it must be two different nodes of 0 to 4",
        ),
        (
            example(edges__nodes=[[0, 1]], edges__costs=[[1]]),
            "problem.edges.costs[0] has 1 entry; it must have 2",
        ),
        (
            example(edges__nodes=[[0, 1]]),
            "problem.edges.costs has 5 entries, and nodes has 1",
        ),
        (
            example(usage_limit=-1),
            "problem.usage_limit[0] is -1; it must be an integer of 0 to 2**62 - 1",
        ),
    ],
)  # fmt: skip
def test_errors_name_the_entry(content: object, message: str) -> None:
    with pytest.raises(PlanningError) as error:
        problem_of_json(content)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"{", "is not valid JSON: Expecting property name enclosed in double quotes"),
        (b'{"a": NaN}', "is not valid JSON: NaN is not a number of JSON"),
        (b"\x1f\x8b\x00", "cannot read"),
        (b"\xff\xfe", "is not valid JSON"),
        (b"[" * 100_000, "is not valid JSON"),
    ],
    ids=["cut off", "NaN", "gzip", "encoding", "nesting"],
)
def test_other_files_are_refused(data: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(data)
    with pytest.raises(PlanningError, match=message):
        read_problem(path)


@pytest.mark.parametrize(
    ("strategies", "message"),
    [
        ((0,), "the assignment has 1 strategies, and the problem has 5 nodes"),
        ((0, 2, 0, 0, 0), "node 1 has no strategy 2; it has 2"),
        ((0, 0, 1, 0, 0), "the assignment needs 55 of memory, and the limit is 50"),
    ],
)
def test_invalid_assignments_are_refused(strategies: tuple[int, ...], message: str) -> None:
    with pytest.raises(PlanningError) as error:
        evaluate(problem_of_json(EXAMPLE), strategies)
    assert str(error.value) == message


def test_forbidden_pairs_are_refused() -> None:
    costs = EXAMPLE["problem"]["edges"]["costs"]
    content = example(edges__costs=[[FORBIDDEN, 40], *costs[1:]])
    with pytest.raises(PlanningError) as error:
        evaluate(problem_of_json(content), (0, 0, 2, 1, 0))
    assert str(error.value) == "the assignment has a forbidden strategy or pair of strategies"


def brute_force(content: dict[str, Any]) -> int | None:
    """Return the least cost of all assignments within the limit."""
    problem = problem_of_json(content)
    costs = [
        cost
        for chosen in product(*(range(len(costs)) for costs in problem.costs))
        if (cost := problem.cost_of(chosen)) is not None
        and (problem.usage_limit is None or problem.peak_of(chosen) <= problem.usage_limit)
    ]
    return min(costs, default=None)
