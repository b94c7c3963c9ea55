"""Run a propagation network to its fixed point.

Every node is visited once, in program order; when a cell changes, the nodes that it wakes are added
to the worklist unless they are on it. The order of the worklist affects the result only where axes
conflict: `lifo` is the order of MLIR and Shardy, `fifo` visits the program in waves.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from shardir.passes.propagation.priorities import FactorDirections
from shardir.passes.propagation.step import StepMemo, StepOutcome

if TYPE_CHECKING:
    from shardir.passes.propagation.aggressive import PropagationStrategy
    from shardir.passes.propagation.propagation_network import PropagationNetwork

StepObserver = Callable[[int, tuple[int, ...], StepOutcome], None]
"""Called with a node, the previous shardings of its tensors, and the changes."""


def run_worklist(
    network: "PropagationNetwork",
    states: list[int],
    propagate: "PropagationStrategy",
    directions: Sequence[FactorDirections],
    *,
    order: str,
    watch: StepObserver | None = None,
    changed: Callable[[int], None] | None = None,
) -> None:
    """Propagate until nothing changes; `states` holds the shardings of the cells, and is updated.

    `directions` states for each node in which directions axes may move; `changed` is called with
    each cell whose sharding changes.
    """
    nodes, wakes, groups = network.nodes, network.wakes, network.groups
    memos: list[StepMemo | None] = [
        node.stepper.memo(propagate, ways) if any(ways) else None
        for node, ways in zip(nodes, directions, strict=True)
    ]
    cells = [node.cells for node in nodes]
    bridges = [node.bridge for node in nodes]
    waiting = deque(i for i, memo in enumerate(memos) if memo is not None)
    if order == "lifo":
        waiting.reverse()
    take = waiting.pop if order == "lifo" else waiting.popleft
    listed = bytearray(memo is not None for memo in memos)
    while waiting:
        number = take()
        listed[number] = False
        memo = memos[number]
        assert memo is not None
        state = tuple([states[cell] for cell in cells[number]])
        bridge = bridges[number]
        if bridge is not None:
            state = (*state[:-1], bridge.to_edge(state[-1]))
        outcome = memo.get(state)
        if outcome is None:
            outcome = nodes[number].stepper.step(propagate, directions[number], state)
        if not outcome.updates:
            continue
        if watch is not None:
            watch(number, state, outcome)
        for tensor, sharding in outcome.updates:
            cell = cells[number][tensor]
            if bridge is not None and tensor == len(state) - 1:
                sharding = bridge.to_cell(sharding)
            members = groups.get(cell, ()) if groups else ()
            for alike, woken in ((cell, wakes[cell]), *members):
                states[alike] = sharding
                if changed is not None:
                    changed(alike)
                for node in woken:
                    if node != number and not listed[node] and memos[node] is not None:
                        listed[node] = True
                        waiting.append(node)
