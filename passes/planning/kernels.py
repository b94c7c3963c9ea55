"""The inner loops of the search engine, in the subset of Python that `kernel_compiler` compiles."""

from typing import NamedTuple

from shardir.passes.planning.kernel_compiler import Floats, Ints

INFINITE = 1e300
"""A cost above that of every assignment; the cost of forbidden pairs is infinite."""
MAX_ATTEMPTS = 4
"""The maximum number of price factors that a move tries."""
FORBIDDEN_COST = 1e16
"""The cost of a forbidden pair in the local search, which removes such pairs first."""


class Graph(NamedTuple):
    """The strategies and the edges of a planning problem.

    The strategies of node `i` are the entries `offsets[i]` to `offsets[i + 1]` of arrays over all
    strategies. Edge `e` joins the nodes `first[e] < second[e]`; its costs are the entries from
    `tables_of[e]` of `tables`, row-major over (strategy of the first, strategy of the second). The
    messages of edge `e` are the entries of an array from `to_first[e]` (one for each strategy of
    the first node) and from `to_second[e]`.
    """

    offsets: Ints
    first: Ints
    second: Ints
    tables_of: Ints
    to_first: Ints
    to_second: Ints
    tables: Floats


class Incidence(NamedTuple):
    """Edges of each node: those of node `i` are `edges` from `begins[i]` to `begins[i + 1]`."""

    begins: Ints
    edges: Ints


class Memory(NamedTuple):
    """The memory that each strategy uses, and the price of a unit at each node.

    Node `i` is alive at the points `starts[i]` to `ends[i]`; a point is a maximal set of nodes that
    are alive together. `slack` is the memory that remains at each point.
    """

    usages: Ints
    prices: Floats
    starts: Ints
    ends: Ints
    slack: Ints


class Tree(NamedTuple):
    """Nodes whose edges among each other form a tree, and the move that optimizes them.

    `members` holds the nodes, `parents` the edge of each node to its parent, `places` the position
    of each node in `members`, or -1, and `touched` the number of its neighbors in the tree.
    `proposed` holds the new strategies of the members. `base_costs` holds the costs of strategies
    with the nodes outside of the tree, `tree_costs` these and the costs of the subtree below, and
    `choices` the best strategy of a node for each strategy of its parent, at the message of their
    edge to the parent.
    """

    members: Ints
    parents: Ints
    places: Ints
    touched: Ints
    proposed: Ints
    base_costs: Floats
    tree_costs: Floats
    choices: Ints


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


def random_below(state: Ints, limit: int) -> int:
    """Return a random number from 0 to `limit - 1`, and step the generator in `state[0]`."""
    state[0] = (state[0] * 1103515245 + 12345) % 2147483648
    high = state[0] // 32768
    state[0] = (state[0] * 1103515245 + 12345) % 2147483648
    return int((high * 65536 + state[0] // 32768) % limit)


def change_usage(amount: int, start: int, end: int, slack: Ints) -> float:
    """Take `amount` from `slack` at the points, and return the change of the total overuse."""
    before = 0
    after = 0
    for point in range(start, end):
        before -= min(slack[point], 0)
        slack[point] -= amount
        after -= min(slack[point], 0)
    return float(after - before)


def grow_tree(
    root: int, size: int, graph: Graph, neighbors: Incidence, state: Ints, tree: Tree
) -> int:
    """Choose nodes around `root` whose edges among each other form a tree; return their number.

    Nodes with one edge do not count for `size`.
    """
    tree.members[0] = root
    tree.parents[root] = -1
    tree.places[root] = 0
    count = 1
    inner = 1
    head = 0
    while head < count:
        node = tree.members[head]
        head += 1
        begin = neighbors.begins[node]
        degree = neighbors.begins[node + 1] - begin
        if head == 1:
            for position in range(begin, begin + degree):
                edge = neighbors.edges[position]
                tree.touched[graph.first[edge] + graph.second[edge] - node] += 1
        if degree == 0:
            break
        turn = random_below(state, degree)
        for step in range(degree):
            position = step + turn
            if position >= degree:
                position -= degree
            edge = neighbors.edges[begin + position]
            other = graph.first[edge] + graph.second[edge] - node
            if tree.places[other] < 0 and tree.touched[other] == 1:
                links = neighbors.begins[other + 1] - neighbors.begins[other]
                if links == 1 or inner < size:
                    if links > 1:
                        inner += 1
                    tree.members[count] = other
                    tree.parents[other] = edge
                    tree.places[other] = count
                    count += 1
                    for near in range(neighbors.begins[other], neighbors.begins[other + 1]):
                        edge = neighbors.edges[near]
                        tree.touched[graph.first[edge] + graph.second[edge] - other] += 1
    return count


def release_tree(count: int, graph: Graph, neighbors: Incidence, tree: Tree) -> int:
    """Reset `places` and `touched` after the use of a tree."""
    for position in range(count):
        node = tree.members[position]
        tree.places[node] = -1
        for near in range(neighbors.begins[node], neighbors.begins[node + 1]):
            edge = neighbors.edges[near]
            tree.touched[graph.first[edge] + graph.second[edge] - node] = 0
    return 0


def set_base_costs(
    count: int,
    graph: Graph,
    neighbors: Incidence,
    costs: Floats,
    strategies: Ints,
    tree: Tree,
) -> float:
    """Set the costs of strategies with the nodes outside of the tree; return the present cost."""
    before = 0.0
    for position in range(count):
        node = tree.members[position]
        base = graph.offsets[node]
        states = graph.offsets[node + 1] - base
        for s in range(states):
            tree.base_costs[base + s] = costs[base + s]
        for near in range(neighbors.begins[node], neighbors.begins[node + 1]):
            edge = neighbors.edges[near]
            other = graph.first[edge] + graph.second[edge] - node
            if tree.places[other] < 0:
                if graph.second[edge] == node:
                    row = graph.tables_of[edge] + strategies[other] * states
                    for s in range(states):
                        tree.base_costs[base + s] += min(graph.tables[row + s], FORBIDDEN_COST)
                else:
                    width = graph.offsets[other + 1] - graph.offsets[other]
                    row = graph.tables_of[edge] + strategies[other]
                    for s in range(states):
                        tree.base_costs[base + s] += min(
                            graph.tables[row + s * width], FORBIDDEN_COST
                        )
        before += tree.base_costs[base + strategies[node]]
        edge = tree.parents[node]
        if edge >= 0:
            a = graph.first[edge]
            b = graph.second[edge]
            entry = graph.tables_of[edge] + strategies[a] * (
                graph.offsets[b + 1] - graph.offsets[b]
            )
            before += min(graph.tables[entry + strategies[b]], FORBIDDEN_COST)
    return before


def optimize_tree(count: int, factor: float, graph: Graph, memory: Memory, tree: Tree) -> int:
    """Find the best strategy of each node of the tree for each strategy of its parent.

    The costs include the prices of memory, multiplied by `factor`.
    """
    for position in range(count):
        node = tree.members[position]
        price = factor * memory.prices[node]
        for entry in range(graph.offsets[node], graph.offsets[node + 1]):
            tree.tree_costs[entry] = tree.base_costs[entry] + price * memory.usages[entry]
    for back in range(count - 1):
        node = tree.members[count - 1 - back]
        edge = tree.parents[node]
        parent = graph.first[edge] + graph.second[edge] - node
        base = graph.offsets[node]
        states = graph.offsets[node + 1] - base
        onto = graph.offsets[parent]
        width = graph.offsets[parent + 1] - onto
        table = graph.tables_of[edge]
        place = graph.to_first[edge]
        row_step = states
        column_step = 1
        if graph.second[edge] == parent:
            place = graph.to_second[edge]
            row_step = 1
            column_step = width
        for t in range(width):
            least = INFINITE
            best = 0
            for s in range(states):
                entry = table + t * row_step + s * column_step
                total = tree.tree_costs[base + s] + min(graph.tables[entry], FORBIDDEN_COST)
                if total < least:
                    least = total
                    best = s
            tree.tree_costs[onto + t] += least
            tree.choices[place + t] = best
    return 0


def propose_strategies(count: int, graph: Graph, tree: Tree) -> float:
    """Set the new strategies of the nodes of the tree, and return their cost without prices."""
    after = 0.0
    for position in range(count):
        node = tree.members[position]
        base = graph.offsets[node]
        edge = tree.parents[node]
        best = 0
        if edge < 0:
            for s in range(graph.offsets[node + 1] - base):
                if tree.tree_costs[base + s] < tree.tree_costs[base + best]:
                    best = s
        else:
            parent = graph.first[edge] + graph.second[edge] - node
            chosen = tree.proposed[tree.places[parent]]
            if graph.second[edge] == parent:
                best = tree.choices[graph.to_second[edge] + chosen]
                entry = graph.tables_of[edge] + best * (
                    graph.offsets[parent + 1] - graph.offsets[parent]
                )
                after += min(graph.tables[entry + chosen], FORBIDDEN_COST)
            else:
                best = tree.choices[graph.to_first[edge] + chosen]
                entry = graph.tables_of[edge] + chosen * (graph.offsets[node + 1] - base)
                after += min(graph.tables[entry + best], FORBIDDEN_COST)
        tree.proposed[position] = best
        after += tree.base_costs[base + best]
    return after


def is_changed(count: int, strategies: Ints, tree: Tree) -> int:
    """Return whether a new strategy of a node of the tree differs from its present one."""
    for position in range(count):
        if tree.proposed[position] != strategies[tree.members[position]]:
            return 1
    return 0


def change_usages(
    sign: int, count: int, graph: Graph, memory: Memory, strategies: Ints, tree: Tree
) -> float:
    """Take the memory that the new strategies use more, and return the change of the overuse.

    The `sign` -1 gives it back.
    """
    more = 0.0
    for position in range(count):
        node = tree.members[position]
        base = graph.offsets[node]
        new = memory.usages[base + tree.proposed[position]]
        amount = sign * (new - memory.usages[base + strategies[node]])
        if amount != 0:
            more += change_usage(amount, memory.starts[node], memory.ends[node], memory.slack)
    return more


def improve(
    moves: int,
    size: int,
    penalty: float,
    node_count: int,
    graph: Graph,
    neighbors: Incidence,
    costs: Floats,
    memory: Memory,
    strategies: Ints,
    state: Ints,
    tree: Tree,
    overuse: Floats,
) -> int:
    """Try `moves` changes of the strategies, and return the number of those that it kept.

    A move optimizes the strategies of the nodes of a random tree by dynamic programming, while the
    other nodes keep theirs. It adds the prices of memory to the costs, multiplied by a random
    factor that adapts to the result. A move is kept if the cost plus `penalty` times the total
    overuse of memory does not rise, or, while there is no overuse, if neither of them rises.
    `overuse[0]` holds the total overuse.
    """
    kept = 0
    for _move in range(moves):
        root = random_below(state, node_count)
        limit = 1 + random_below(state, size)
        count = grow_tree(root, limit, graph, neighbors, state, tree)
        before = set_base_costs(count, graph, neighbors, costs, strategies, tree)
        factor = 0.25 + 0.0001 * random_below(state, 12500)
        for _attempt in range(MAX_ATTEMPTS):
            optimize_tree(count, factor, graph, memory, tree)
            change = propose_strategies(count, graph, tree) - before
            # Without overuse, none can fall, so a move with a higher cost cannot be kept.
            if (change > 0.0 and overuse[0] <= 0.0) or not is_changed(count, strategies, tree):
                factor = factor * 0.3
                continue
            more = change_usages(1, count, graph, memory, strategies, tree)
            # Without overuse, no move may add any.
            weight = penalty if overuse[0] > 0.0 else INFINITE
            if (change <= 0.0 and more <= 0.0) or change + weight * more <= 0.0:
                for position in range(count):
                    strategies[tree.members[position]] = tree.proposed[position]
                overuse[0] += more
                kept += 1
                break
            change_usages(-1, count, graph, memory, strategies, tree)
            factor = factor * 2.0 + 0.0001 if more > 0.0 else factor * 0.3
        release_tree(count, graph, neighbors, tree)
    return kept
