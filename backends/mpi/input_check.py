"""Comparing digests of the inputs of a call by messages that the call sends anyway.

Each process begins with the digest of its own inputs as its *state*. With the messages of some
collectives, the *carriers*, it sends its state along; where one that it receives is another than
its own, its state becomes `MISMATCH`. So after a carrier the state of a process is its digest if
and only if all processes whose digests have reached it, directly or through others, have the same.
Once every digest can have reached every process, all states are digests or all are `MISMATCH`, and
all processes take the same decision at the same place in the program.

Which digests reach whom follows from the program alone. A program whose collectives do not connect
all of its processes, or that may do something else before they have (a loop or a branch with
collectives of its own, an effect), has the states exchanged before it begins, by dissemination: in
round k each process sends to the one 2^k places after it (Hensgen, Finkel and Manber, "Two
algorithms for barrier synchronization", 1988).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from shardir.ir import Block, Op
from shardir.ops.overlap import is_started

DIGEST_BYTES = 16
MISMATCH = b"\xff" * DIGEST_BYTES
"""The state of a process that has seen another digest than its own."""

Links = frozenset[tuple[int, int]]
"""Pairs (sender, receiver) of processes."""


def combined(state: bytes, others: Iterable[bytes]) -> bytes:
    """Return the state of a process that has received those of others."""
    return state if all(other == state for other in others) else MISMATCH


def carriers_of(body: Block, links: Mapping[Op, Links], processes: Sequence[int]) -> tuple[Op, ...]:
    """Return the first collectives of a program that together bring every digest to every process.

    `links` has those of each collective. Empty where there are none such before the program does
    something that its inputs may have decided.
    """
    everyone = frozenset(processes)
    reached = {process: frozenset((process,)) for process in processes}
    chosen: list[Op] = []
    for op in body.ops:
        inner = [each for block in op.blocks for each in block.walk()]
        if op.spec.effect or any(each.spec.collective or each.spec.effect for each in inner):
            return ()
        if is_started(op):
            return ()  # An error must find no message on its way.
        if op not in links:
            continue
        before = dict(reached)
        for sender, receiver in links[op]:
            reached[receiver] |= before[sender]
        if reached != before:
            chosen.append(op)
        if all(each == everyone for each in reached.values()):
            return tuple(chosen)
    return ()


def rounds(processes: Sequence[int], index: int) -> Iterator[tuple[int, int]]:
    """Yield, for each round of dissemination, whom a process sends to and whom it receives from."""
    place, count, distance = processes.index(index), len(processes), 1
    while distance < count:
        yield processes[(place + distance) % count], processes[(place - distance) % count]
        distance *= 2
