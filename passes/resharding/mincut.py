"""Minimum cuts: partition a graph in two so that the arcs from one part to the other have the
smallest total weight.

The algorithm is Dinic's: as long as the sink is reachable, send flow along shortest paths. It is
iterative, because graphs are as deep as programs are long.
"""

from collections import deque
from typing import Final

UNCUTTABLE_CAPACITY: Final = 1 << 120
"""Capacity of an arc that no minimum cut contains."""


class FlowNetwork:
    """Directed graph with capacities. Node 0 is the source, node 1 the sink."""

    def __init__(self) -> None:
        self.arcs_of_node: list[list[int]] = [[], []]
        self.arc_ends: list[int] = []
        self.capacities: list[int] = []

    def add_node(self) -> int:
        """Add a node and return its number."""
        self.arcs_of_node.append([])
        return len(self.arcs_of_node) - 1

    def add_arc(self, start: int, end: int, capacity: int) -> None:
        """Add an arc, whose capacity is paid if `start` is on the source side and `end` is not."""
        if capacity > 0:
            self.arcs_of_node[start].append(len(self.arc_ends))
            self.arc_ends.append(end)
            self.capacities.append(capacity)
            self.arcs_of_node[end].append(len(self.arc_ends))
            self.arc_ends.append(start)
            self.capacities.append(0)

    def minimum_cut(self) -> tuple[int, set[int]]:
        """Return the weight of a minimum cut, and the smallest source side of such a cut."""
        flow = 0
        while True:
            level = self._levels()
            if level[1] < 0:
                return flow, {node for node, depth in enumerate(level) if depth >= 0}
            flow += self._fill(level)

    def _levels(self) -> list[int]:
        """Return the distance of every node from the source; -1 for unreachable nodes."""
        level = [-1] * len(self.arcs_of_node)
        level[0] = 0
        queue = deque([0])
        while queue:
            node = queue.popleft()
            for arc in self.arcs_of_node[node]:
                end = self.arc_ends[arc]
                if self.capacities[arc] and level[end] < 0:
                    level[end] = level[node] + 1
                    queue.append(end)
        return level

    def _fill(self, level: list[int]) -> int:
        """Send a blocking flow along shortest paths, and return its amount."""
        total = 0
        tried = [0] * len(self.arcs_of_node)
        path: list[int] = []
        node = 0
        while True:
            if node == 1:
                sent = min(self.capacities[arc] for arc in path)
                total += sent
                first = len(path)
                for i in range(len(path) - 1, -1, -1):
                    self.capacities[path[i]] -= sent
                    self.capacities[path[i] ^ 1] += sent
                    if not self.capacities[path[i]]:
                        first = i
                node = self.arc_ends[path[first] ^ 1]
                del path[first:]
                continue
            arcs = self.arcs_of_node[node]
            while tried[node] < len(arcs):
                arc = arcs[tried[node]]
                if self.capacities[arc] and level[self.arc_ends[arc]] == level[node] + 1:
                    break
                tried[node] += 1
            if tried[node] < len(arcs):
                path.append(arcs[tried[node]])
                node = self.arc_ends[path[-1]]
            elif path:
                node = self.arc_ends[path.pop() ^ 1]
                tried[node] += 1
            else:
                return total
