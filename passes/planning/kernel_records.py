"""The records of arrays that the kernels of the search engine take."""

from typing import NamedTuple

from shardir.passes.planning.kernel_compiler import Floats, Ints

INFINITE = 1e300
"""A cost above that of every assignment; the cost of forbidden pairs is infinite."""
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
