"""Kernels of the local search, which optimizes trees of nodes; `kernel_compiler` compiles them."""

from shardir.passes.planning.kernel_compiler import Floats, Ints
from shardir.passes.planning.kernel_records import (
    FORBIDDEN_COST,
    INFINITE,
    Graph,
    Incidence,
    Memory,
    Tree,
)

MAX_ATTEMPTS = 4
"""The maximum number of price factors that a move tries."""


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
            if change + weight * more <= 0.0:
                for position in range(count):
                    strategies[tree.members[position]] = tree.proposed[position]
                overuse[0] += more
                kept += 1
                break
            change_usages(-1, count, graph, memory, strategies, tree)
            factor = factor * 2.0 + 0.0001 if more > 0.0 else factor * 0.3
        release_tree(count, graph, neighbors, tree)
    return kept
