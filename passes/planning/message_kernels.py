"""Kernels of message passing, which bounds the cost from below; `kernel_compiler` compiles them."""

from shardir.passes.planning.kernel_compiler import Floats, Ints
from shardir.passes.planning.kernel_records import INFINITE, Graph, Incidence


def pull_message(
    node: int, edge: int, count: int, graph: Graph, messages: Floats, minima: Floats
) -> int:
    """Set `minima` to the least cost of `edge` for each strategy of `node`, without `messages`."""
    table = graph.tables_of[edge]
    if graph.second[edge] == node:
        other = graph.first[edge]
        size = graph.offsets[other + 1] - graph.offsets[other]
        place = graph.to_first[edge]
        for s in range(count):
            minima[s] = INFINITE
        for t in range(size):
            known = messages[place + t]
            row = table + t * count
            for s in range(count):
                minima[s] = min(minima[s], graph.tables[row + s] - known)
    else:
        other = graph.second[edge]
        size = graph.offsets[other + 1] - graph.offsets[other]
        place = graph.to_second[edge]
        for s in range(count):
            row = table + s * size
            least = INFINITE
            for t in range(size):
                least = min(least, graph.tables[row + t] - messages[place + t])
            minima[s] = least
    return 0


def message_place(node: int, edge: int, graph: Graph) -> int:
    """Return where the message of an edge to a node begins."""
    return int(graph.to_second[edge] if graph.second[edge] == node else graph.to_first[edge])


def choose_strategy(
    node: int,
    graph: Graph,
    into: Incidence,
    messages: Floats,
    reduced: Floats,
    minima: Floats,
    strategies: Ints,
) -> int:
    """Return the best strategy of a node for those of earlier nodes, and overwrite `minima`."""
    base = graph.offsets[node]
    count = graph.offsets[node + 1] - base
    for s in range(count):
        minima[s] = reduced[base + s]
    for position in range(into.begins[node], into.begins[node + 1]):
        edge = into.edges[position]
        if graph.second[edge] == node:
            row = graph.tables_of[edge] + strategies[graph.first[edge]] * count
            place = graph.to_second[edge]
            for s in range(count):
                minima[s] += graph.tables[row + s] - messages[place + s]
        else:
            other = graph.second[edge]
            size = graph.offsets[other + 1] - graph.offsets[other]
            row = graph.tables_of[edge] + strategies[other]
            place = graph.to_first[edge]
            for s in range(count):
                minima[s] += graph.tables[row + s * size] - messages[place + s]
    best = -1
    least = INFINITE
    for s in range(count):
        if minima[s] < least:
            least = minima[s]
            best = s
    if best < 0:  # Each strategy is forbidden with one that was chosen.
        best = 0
        for s in range(count):
            if reduced[base + s] < reduced[base + best]:
                best = s
    return best


def sweep(
    is_backward: int,
    node_count: int,
    graph: Graph,
    into: Incidence,
    out: Incidence,
    messages: Floats,
    reduced: Floats,
    minima: Floats,
    strategies: Ints,
) -> float:
    """Pass messages through all nodes in one direction, and return the bound that results.

    This is sequential reweighted message passing (V. Kolmogorov, "A New Look at Reweighted Message
    Passing", doi 10.1109/TPAMI.2014.2363465), which equals TRW-S for edges of two nodes. `reduced`
    holds the cost of each strategy that messages have left at its node. The function also chooses
    the best strategy of each node for those chosen before.
    """
    bound = 0.0
    for step in range(node_count):
        node = node_count - 1 - step if is_backward else step
        base = graph.offsets[node]
        count = graph.offsets[node + 1] - base
        incoming = into.begins[node + 1] - into.begins[node]
        outgoing = out.begins[node + 1] - out.begins[node]
        for position in range(into.begins[node], into.begins[node + 1]):
            edge = into.edges[position]
            pull_message(node, edge, count, graph, messages, minima)
            place = message_place(node, edge, graph)
            for s in range(count):
                reduced[base + s] += minima[s] - messages[place + s]
                messages[place + s] = minima[s]
        strategies[node] = choose_strategy(node, graph, into, messages, reduced, minima, strategies)
        if outgoing > 0:
            share = 1.0 / max(incoming, outgoing)
            for position in range(out.begins[node], out.begins[node + 1]):
                edge = out.edges[position]
                place = message_place(node, edge, graph)
                for s in range(count):
                    messages[place + s] -= share * reduced[base + s]
            for s in range(count):
                reduced[base + s] *= 1.0 - share * outgoing
        least = INFINITE
        for s in range(count):
            least = min(least, reduced[base + s])
        bound += least
    return bound


def find_edge_minima(edge_count: int, graph: Graph, messages: Floats, minima: Floats) -> int:
    """Set `minima` to the least cost of each edge without its messages."""
    for edge in range(edge_count):
        a = graph.first[edge]
        b = graph.second[edge]
        width = graph.offsets[b + 1] - graph.offsets[b]
        least = INFINITE
        for s in range(graph.offsets[a + 1] - graph.offsets[a]):
            row = graph.tables_of[edge] + s * width
            known = messages[graph.to_first[edge] + s]
            for t in range(width):
                least = min(
                    least, graph.tables[row + t] - known - messages[graph.to_second[edge] + t]
                )
        minima[edge] = least
    return 0
