"""The kernels of the search run as Python with the same results as the compiled ones."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from shardir.passes.planning import message_kernels, tree_kernels
from shardir.passes.planning.kernel_compiler import Floats
from shardir.passes.planning.kernel_records import Memory, Tree
from shardir.passes.planning.network import Network
from shardir.passes.planning.problem import FORBIDDEN, Edge, PlanningProblem
from shardir.passes.planning.search import load_kernels

NODES = 9


def check_time() -> None:
    """Permit any time."""


def network_of(seed: int) -> Network:
    """Return a network of nodes with few strategies, among them one without edges and one with one
    edge. The first strategies of all nodes are a solution."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 5, NODES)
    edges = []
    for a in range(NODES - 1):
        for b in range(a + 1, NODES - 1):
            if rng.random() < (0.5 if b < NODES - 2 else 0.1) or (a, b) == (0, NODES - 2):
                costs = rng.integers(0, 20, (counts[a], counts[b]))
                costs[rng.random(costs.shape) < 0.3] = FORBIDDEN
                costs[0, 0] = 9
                edges.append(Edge(a, b, costs))
    usages = [np.sort(rng.integers(0, 9, count)) for count in counts]
    starts = rng.integers(0, 6, NODES)
    problem = PlanningProblem(
        "random",
        starts,
        starts + rng.integers(0, 5, NODES),
        [rng.integers(0, 20, count) for count in counts],
        usages,
        edges,
        None,
    )
    least = problem.peak_of([0] * NODES)
    most = problem.peak_of([len(own) - 1 for own in usages])
    limited = PlanningProblem(
        problem.name, problem.starts, problem.ends, problem.costs, usages, edges,
        least + (most - least) // 3,
    )  # fmt: skip
    return Network(limited, check_time)


@dataclass
class Passing:
    """The state of message passing."""

    messages: Floats
    reduced: Floats
    minima: Floats
    strategies: Any

    @classmethod
    def start(cls, network: Network) -> "Passing":
        return cls(
            np.zeros(network.message_count),
            network.costs.copy(),
            np.zeros(max(network.counts.max(), network.edge_count)),
            np.zeros(network.node_count, np.int64),
        )

    def sweep(self, kernel: Any, network: Network, *, is_backward: bool) -> float:
        into, out = network.earlier, network.later
        if is_backward:
            into, out = out, into
        bound: float = kernel(
            int(is_backward), network.node_count, network.graph, into, out,
            self.messages, self.reduced, self.minima, self.strategies,
        )  # fmt: skip
        return bound

    def __eq__(self, other: object) -> bool:
        assert isinstance(other, Passing)
        return all(
            np.array_equal(mine, theirs)
            for mine, theirs in zip(vars(self).values(), vars(other).values(), strict=True)
        )


@pytest.mark.sample(3)
@pytest.mark.parametrize("seed", range(12))
def test_message_passing(seed: int) -> None:
    network, kernels = network_of(seed), load_kernels()
    mine, theirs = Passing.start(network), Passing.start(network)
    bounds = []
    for number in range(6):
        is_backward = number % 2 == 1
        bounds.append(mine.sweep(message_kernels.sweep, network, is_backward=is_backward))
        assert theirs.sweep(kernels["sweep"], network, is_backward=is_backward) == bounds[-1]
        assert mine == theirs
        count, graph = network.edge_count, network.graph
        message_kernels.find_edge_minima(count, graph, mine.messages, mine.minima)
        kernels["find_edge_minima"](count, graph, theirs.messages, theirs.minima)
        assert mine == theirs
    assert all(later >= earlier - 1e-9 for earlier, later in pairwise(bounds))


def improve_from(
    kernel: Any,
    network: Network,
    start: Sequence[int],
    prices: Sequence[float],
    penalty: float = 3.0,
    seed: int = 0,
) -> dict[str, Any]:
    """Return the arrays that local search from some strategies changes, and the number of kept
    moves."""
    strategies = np.array(start, np.int64)
    slack = network.limit - network.usage_of(strategies)
    memory = Memory(network.usages, np.array(prices), network.starts, network.ends, slack)
    nodes, count = network.node_count, len(network.costs)
    tree = Tree(
        members=np.zeros(nodes, np.int64),
        parents=np.zeros(nodes, np.int64),
        places=np.full(nodes, -1, np.int64),
        touched=np.zeros(nodes, np.int64),
        proposed=np.zeros(nodes, np.int64),
        base_costs=np.zeros(count),
        tree_costs=np.zeros(count),
        choices=np.zeros(network.message_count, np.int64),
    )
    state = np.array([seed * 7919 + 12345], np.int64)
    overuse = np.array([float(-np.minimum(slack, 0).sum())])
    kept = kernel(
        60, 4, penalty, nodes, network.graph, network.neighbors, network.costs, memory,
        strategies, state, tree, overuse,
    )  # fmt: skip
    return {"kept": np.array([kept]), "strategies": strategies, "slack": slack, "state": state,
            "overuse": overuse, **tree._asdict()}  # fmt: skip


def improve(kernel: Any, network: Network, seed: int) -> dict[str, Any]:
    """Return the result of local search from random strategies, or from those of a solution."""
    rng = np.random.default_rng(seed)
    start = [0 if seed % 2 else int(rng.integers(count)) for count in network.counts]
    return improve_from(kernel, network, start, list(rng.random(NODES)), seed=seed)


@pytest.mark.sample(3)
@pytest.mark.parametrize("seed", range(12))
def test_local_search(seed: int) -> None:
    """The memory that remains is that of the strategies, and is not exceeded further."""
    network = network_of(seed)
    mine = improve(tree_kernels.improve, network, seed)
    theirs = improve(load_kernels()["improve"], network, seed)
    for name, array in mine.items():
        assert array.tolist() == theirs[name].tolist(), name
    assert mine["slack"].tolist() == (network.limit - network.usage_of(mine["strategies"])).tolist()
    assert mine["overuse"][0] == -np.minimum(mine["slack"], 0).sum()
    assert mine["places"].tolist() == [-1] * NODES
    assert mine["touched"].tolist() == [0] * NODES


def test_a_move_may_cost_more_where_that_removes_overuse() -> None:
    """A node exceeds the memory by 4 with its first strategy; the second one costs 1."""
    problem = PlanningProblem(
        "one", np.zeros(1, np.int64), np.ones(1, np.int64), [np.array([0, 1])],
        [np.array([9, 0])], [], 5,
    )  # fmt: skip
    found = improve_from(tree_kernels.improve, Network(problem, check_time), [0], [1.0], 3.0)
    assert found["strategies"].tolist() == [1]
    assert found["overuse"].tolist() == [0.0]
    found = improve_from(tree_kernels.improve, Network(problem, check_time), [0], [1.0], 0.1)
    assert found["strategies"].tolist() == [0]


def test_a_move_that_costs_more_is_tried_again_with_lower_prices() -> None:
    """Memory has a price at the first node only. With a high price, the nodes take the second
    strategy, which costs more and exceeds the memory at the second node. With a low one, they take
    the third one, which costs less."""
    equal = np.where(np.eye(3, dtype=bool), 0, FORBIDDEN)
    problem = PlanningProblem(
        "two", np.array([0, 1]), np.array([1, 2]),
        [np.array([5, 6, 4]), np.zeros(3, np.int64)],
        [np.array([5, 0, 10]), np.array([0, 99, 0])], [Edge(0, 1, equal)], 10,
    )  # fmt: skip
    found = improve_from(tree_kernels.improve, Network(problem, check_time), [0, 0], [10.0, 0.0])
    assert found["strategies"].tolist() == [2, 2]
