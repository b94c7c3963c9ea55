"""Minimum cuts agree with networkx on random graphs, and ties go to the smallest side."""

import networkx as nx
from hypothesis import given, strategies as st

from shardir.passes.resharding.mincut import FlowNetwork

arcs = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7), st.integers(0, 9)), max_size=40)


@given(arcs)
def test_weights_of_cuts_agree_with_networkx(arcs: list[tuple[int, int, int]]) -> None:
    network, graph = FlowNetwork(), nx.DiGraph()
    for _ in range(6):
        network.add_node()
    graph.add_nodes_from(range(8))
    for start, end, weight in arcs:
        network.add_arc(start, end, weight)
        if start != end:
            known = graph.get_edge_data(start, end, {"capacity": 0})["capacity"]
            graph.add_edge(start, end, capacity=known + weight)
    weight, side = network.minimum_cut()
    assert weight == nx.minimum_cut_value(graph, 0, 1)
    assert 0 in side
    assert 1 not in side
    assert weight == sum(w for a, b, w in arcs if a in side and b not in side)


def test_ties_select_the_cut_nearest_to_the_source() -> None:
    network = FlowNetwork()
    node = network.add_node()
    network.add_arc(0, node, 3)
    network.add_arc(node, 1, 3)
    assert network.minimum_cut() == (3, {0})


def test_long_chains_need_no_recursion() -> None:
    network = FlowNetwork()
    last = 0
    for _ in range(5000):
        node = network.add_node()
        network.add_arc(last, node, 2)
        last = node
    network.add_arc(last, 1, 1)
    weight, side = network.minimum_cut()
    assert weight == 1
    assert len(side) == 5001
