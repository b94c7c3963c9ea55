"""The inner loops of the search engine, in the subset of Python that `kernel_compiler` compiles.

The strategies of node `i` are the entries `offsets[i]` to `offsets[i + 1]` of arrays over all
strategies. Edge `e` joins the nodes `first[e] < second[e]`; its costs are the entries from
`tables_of[e]` of `tables`, row-major over (strategy of the first, strategy of the second). The
messages of edge `e` are the entries of `messages` from `to_first[e]` (one for each strategy of the
first node) and from `to_second[e]`. The edges of node `i` to later nodes are `later_edges` from
`later[i]` to `later[i + 1]`, and those to earlier nodes are `earlier_edges`. Node `i` is alive at
the points `starts[i]` to `ends[i]`; a point is a maximal set of nodes that are alive together.
"""

from shardir.passes.planning.kernel_compiler import Floats, Ints

INFINITE = 1e300
"""A cost above that of every assignment; the cost of forbidden pairs is infinite."""
MAX_ATTEMPTS = 4
"""The maximum number of price factors that a move tries."""
FORBIDDEN_COST = 1e16
"""The cost of a forbidden pair in the local search, which removes such pairs first."""


def pull_message(
    node: int,
    edge: int,
    count: int,
    offsets: Ints,
    first: Ints,
    second: Ints,
    tables_of: Ints,
    to_first: Ints,
    to_second: Ints,
    tables: Floats,
    messages: Floats,
    minima: Floats,
) -> int:
    """Set `minima` to the least cost of `edge` for each strategy of `node`, without `messages`."""
    table = tables_of[edge]
    if second[edge] == node:
        other = first[edge]
        size = offsets[other + 1] - offsets[other]
        place = to_first[edge]
        for s in range(count):
            minima[s] = INFINITE
        for t in range(size):
            known = messages[place + t]
            row = table + t * count
            for s in range(count):
                minima[s] = min(minima[s], tables[row + s] - known)
    else:
        other = second[edge]
        size = offsets[other + 1] - offsets[other]
        place = to_second[edge]
        for s in range(count):
            row = table + s * size
            least = INFINITE
            for t in range(size):
                least = min(least, tables[row + t] - messages[place + t])
            minima[s] = least
    return 0


def sweep(
    is_backward: int,
    is_choosing: int,
    node_count: int,
    offsets: Ints,
    into: Ints,
    into_edges: Ints,
    out: Ints,
    out_edges: Ints,
    first: Ints,
    second: Ints,
    tables_of: Ints,
    to_first: Ints,
    to_second: Ints,
    tables: Floats,
    messages: Floats,
    reduced: Floats,
    minima: Floats,
    strategies: Ints,
) -> float:
    """Pass messages through all nodes in one direction, and return the bound that results.

    This is sequential reweighted message passing (V. Kolmogorov, "A New Look at Reweighted Message
    Passing", doi 10.1109/TPAMI.2014.2363465), which equals TRW-S for edges of two nodes. `reduced`
    holds the cost of each strategy that messages have left at its node. With `is_choosing`, the
    function also chooses the best strategy of each node for those chosen before.
    """
    bound = 0.0
    for step in range(node_count):
        node = node_count - 1 - step if is_backward else step
        base = offsets[node]
        count = offsets[node + 1] - base
        incoming = into[node + 1] - into[node]
        outgoing = out[node + 1] - out[node]
        for position in range(into[node], into[node + 1]):
            edge = into_edges[position]
            pull_message(
                node, edge, count, offsets, first, second, tables_of, to_first, to_second, tables,
                messages, minima,
            )  # fmt: skip
            place = to_second[edge] if second[edge] == node else to_first[edge]
            for s in range(count):
                reduced[base + s] += minima[s] - messages[place + s]
                messages[place + s] = minima[s]
        if is_choosing:
            for s in range(count):
                minima[s] = reduced[base + s]
            for position in range(into[node], into[node + 1]):
                edge = into_edges[position]
                if second[edge] == node:
                    row = tables_of[edge] + strategies[first[edge]] * count
                    place = to_second[edge]
                    for s in range(count):
                        minima[s] += tables[row + s] - messages[place + s]
                else:
                    other = second[edge]
                    size = offsets[other + 1] - offsets[other]
                    row = tables_of[edge] + strategies[other]
                    place = to_first[edge]
                    for s in range(count):
                        minima[s] += tables[row + s * size] - messages[place + s]
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
            strategies[node] = best
        if outgoing > 0:
            share = 1.0 / max(incoming, outgoing)
            for position in range(out[node], out[node + 1]):
                edge = out_edges[position]
                place = to_second[edge] if second[edge] == node else to_first[edge]
                for s in range(count):
                    messages[place + s] -= share * reduced[base + s]
            for s in range(count):
                reduced[base + s] *= 1.0 - share * outgoing
        least = INFINITE
        for s in range(count):
            least = min(least, reduced[base + s])
        bound += least
    return bound


def find_edge_minima(
    edge_count: int,
    offsets: Ints,
    first: Ints,
    second: Ints,
    tables_of: Ints,
    to_first: Ints,
    to_second: Ints,
    tables: Floats,
    messages: Floats,
    minima: Floats,
) -> int:
    """Set `minima` to the least cost of each edge without its messages."""
    for edge in range(edge_count):
        a = first[edge]
        b = second[edge]
        width = offsets[b + 1] - offsets[b]
        least = INFINITE
        for s in range(offsets[a + 1] - offsets[a]):
            row = tables_of[edge] + s * width
            known = messages[to_first[edge] + s]
            for t in range(width):
                least = min(least, tables[row + t] - known - messages[to_second[edge] + t])
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
    root: int,
    size: int,
    offsets: Ints,
    neighbors: Ints,
    neighbor_edges: Ints,
    first: Ints,
    second: Ints,
    state: Ints,
    members: Ints,
    parents: Ints,
    places: Ints,
    touched: Ints,
) -> int:
    """Choose nodes around `root` whose edges among each other form a tree; return their number.

    `members` receives the nodes, `parents` the edge of each to its parent, and `places` the
    position of each node in `members`. `touched` counts the neighbors of each node in the tree.
    Nodes with one edge do not count for `size`.
    """
    members[0] = root
    parents[root] = -1
    places[root] = 0
    count = 1
    inner = 1
    head = 0
    while head < count:
        node = members[head]
        head += 1
        begin = neighbors[node]
        degree = neighbors[node + 1] - begin
        if head == 1:
            for position in range(begin, begin + degree):
                edge = neighbor_edges[position]
                touched[first[edge] + second[edge] - node] += 1
        if degree == 0:
            break
        turn = random_below(state, degree)
        for step in range(degree):
            position = step + turn
            if position >= degree:
                position -= degree
            edge = neighbor_edges[begin + position]
            other = first[edge] + second[edge] - node
            if places[other] < 0 and touched[other] == 1:
                links = neighbors[other + 1] - neighbors[other]
                if links == 1 or inner < size:
                    if links > 1:
                        inner += 1
                    members[count] = other
                    parents[other] = edge
                    places[other] = count
                    count += 1
                    for near in range(neighbors[other], neighbors[other + 1]):
                        edge = neighbor_edges[near]
                        touched[first[edge] + second[edge] - other] += 1
    return count


def release_tree(
    count: int,
    neighbors: Ints,
    neighbor_edges: Ints,
    first: Ints,
    second: Ints,
    members: Ints,
    places: Ints,
    touched: Ints,
) -> int:
    """Reset `places` and `touched` after the use of a tree."""
    for position in range(count):
        node = members[position]
        places[node] = -1
        for near in range(neighbors[node], neighbors[node + 1]):
            edge = neighbor_edges[near]
            touched[first[edge] + second[edge] - node] = 0
    return 0


def improve(
    moves: int,
    size: int,
    penalty: float,
    node_count: int,
    offsets: Ints,
    neighbors: Ints,
    neighbor_edges: Ints,
    first: Ints,
    second: Ints,
    tables_of: Ints,
    to_first: Ints,
    to_second: Ints,
    tables: Floats,
    costs: Floats,
    prices: Floats,
    usages: Ints,
    starts: Ints,
    ends: Ints,
    slack: Ints,
    strategies: Ints,
    state: Ints,
    members: Ints,
    parents: Ints,
    places: Ints,
    touched: Ints,
    proposed: Ints,
    base_costs: Floats,
    tree_costs: Floats,
    choices: Ints,
    overuse: Floats,
) -> int:
    """Try `moves` changes of the strategies, and return the number of those that it kept.

    A move optimizes the strategies of the nodes of a random tree by dynamic programming, while the
    other nodes keep theirs. It adds the `prices` of memory to the costs, multiplied by a random
    factor that adapts to the result. A move is kept if the cost plus `penalty` times the total
    overuse of memory does not rise, or, while there is no overuse, if neither of them rises.
    `overuse[0]` holds the total overuse.
    """
    kept = 0
    for _move in range(moves):
        root = random_below(state, node_count)
        limit = 1 + random_below(state, size)
        count = grow_tree(
            root, limit, offsets, neighbors, neighbor_edges, first, second, state, members, parents,
            places, touched,
        )  # fmt: skip
        # The costs of each strategy with the nodes outside the tree.
        before = 0.0
        for position in range(count):
            node = members[position]
            base = offsets[node]
            states = offsets[node + 1] - base
            for s in range(states):
                base_costs[base + s] = costs[base + s]
            for near in range(neighbors[node], neighbors[node + 1]):
                edge = neighbor_edges[near]
                other = first[edge] + second[edge] - node
                if places[other] < 0:
                    if second[edge] == node:
                        row = tables_of[edge] + strategies[other] * states
                        for s in range(states):
                            base_costs[base + s] += min(tables[row + s], FORBIDDEN_COST)
                    else:
                        width = offsets[other + 1] - offsets[other]
                        row = tables_of[edge] + strategies[other]
                        for s in range(states):
                            base_costs[base + s] += min(tables[row + s * width], FORBIDDEN_COST)
            before += base_costs[base + strategies[node]]
            edge = parents[node]
            if edge >= 0:
                a = first[edge]
                b = second[edge]
                entry = tables_of[edge] + strategies[a] * (offsets[b + 1] - offsets[b])
                before += min(tables[entry + strategies[b]], FORBIDDEN_COST)
        factor = 0.25 + 0.0001 * random_below(state, 12500)
        for _attempt in range(MAX_ATTEMPTS):
            for position in range(count):
                node = members[position]
                price = factor * prices[node]
                for entry in range(offsets[node], offsets[node + 1]):
                    tree_costs[entry] = base_costs[entry] + price * usages[entry]
            for back in range(count - 1):
                node = members[count - 1 - back]
                edge = parents[node]
                parent = first[edge] + second[edge] - node
                base = offsets[node]
                states = offsets[node + 1] - base
                onto = offsets[parent]
                width = offsets[parent + 1] - onto
                table = tables_of[edge]
                place = to_first[edge]
                row_step = states
                column_step = 1
                if second[edge] == parent:
                    place = to_second[edge]
                    row_step = 1
                    column_step = width
                for t in range(width):
                    least = INFINITE
                    best = 0
                    for s in range(states):
                        entry = table + t * row_step + s * column_step
                        total = tree_costs[base + s] + min(tables[entry], FORBIDDEN_COST)
                        if total < least:
                            least = total
                            best = s
                    tree_costs[onto + t] += least
                    choices[place + t] = best
            after = 0.0
            for position in range(count):
                node = members[position]
                base = offsets[node]
                edge = parents[node]
                best = 0
                if edge < 0:
                    for s in range(offsets[node + 1] - base):
                        if tree_costs[base + s] < tree_costs[base + best]:
                            best = s
                else:
                    parent = first[edge] + second[edge] - node
                    chosen = proposed[places[parent]]
                    if second[edge] == parent:
                        best = choices[to_second[edge] + chosen]
                        entry = tables_of[edge] + best * (offsets[parent + 1] - offsets[parent])
                        after += min(tables[entry + chosen], FORBIDDEN_COST)
                    else:
                        best = choices[to_first[edge] + chosen]
                        entry = tables_of[edge] + chosen * (offsets[node + 1] - base)
                        after += min(tables[entry + best], FORBIDDEN_COST)
                proposed[position] = best
                after += base_costs[base + best]
            change = after - before
            if change > 0.0 and overuse[0] <= 0.0:
                # No overuse can fall, so the move cannot be kept.
                factor = factor * 0.3
                continue
            more = 0.0
            differs = 0
            for position in range(count):
                node = members[position]
                amount = (
                    usages[offsets[node] + proposed[position]]
                    - usages[offsets[node] + strategies[node]]
                )
                if proposed[position] != strategies[node]:
                    differs = 1
                if amount != 0:
                    more += change_usage(amount, starts[node], ends[node], slack)
            if differs == 0:
                factor = factor * 0.3
                continue
            # Without overuse, no move may add any.
            weight = penalty if overuse[0] > 0.0 else INFINITE
            if (change <= 0.0 and more <= 0.0) or change + weight * more <= 0.0:
                for position in range(count):
                    strategies[members[position]] = proposed[position]
                overuse[0] += more
                kept += 1
                break
            for position in range(count):
                node = members[position]
                amount = (
                    usages[offsets[node] + strategies[node]]
                    - usages[offsets[node] + proposed[position]]
                )
                if amount != 0:
                    change_usage(amount, starts[node], ends[node], slack)
            factor = factor * 2.0 + 0.0001 if more > 0.0 else factor * 0.3
        release_tree(
            count, neighbors, neighbor_edges, first, second, members, places, touched
        )  # fmt: skip
    return kept
