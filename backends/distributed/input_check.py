"""Compares digests of the inputs of a call, in messages that the call sends anyway.

Each process begins with the digest of its own inputs as its *state*. Some collectives, the
*carriers*, send the state along with their messages; if a received state differs from its own, the
state of the process becomes `MISMATCH`. After a carrier, the state of a process is its digest if
and only if all processes whose digests have reached it, directly or through others, have the same
digest. Once every digest can have reached every process, all states are digests or all are
`MISMATCH`, and all processes take the same decision at the same position of the program.

The program alone determines which digests reach which process. If the collectives of a program do
not connect all of its processes, or may be preceded by a loop or a branch with collectives or by an
effect, the states are exchanged before the program begins, by dissemination: in round k each
process sends to the one 2^k ranks after it (Hensgen, Finkel and Manber, "Two algorithms for barrier
synchronization", 1988).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from shardir.ir.module import Block, Op
from shardir.ops.communication.async_collectives import is_started

DIGEST_BYTES = 16
MISMATCH = b"\xff" * DIGEST_BYTES
"""The state of a process that has received a digest other than its own."""

Links = frozenset[tuple[int, int]]
"""Pairs (sender, receiver) of processes."""


def combine_states(state: bytes, others: Iterable[bytes]) -> bytes:
    """Return the state of a process that has received those of others."""
    return state if all(other == state for other in others) else MISMATCH


def carriers_of(body: Block, links: Mapping[Op, Links], processes: Sequence[int]) -> tuple[Op, ...]:
    """Return the first collectives of a program that together send every digest to every process.

    `links` has the links of each collective. The result is empty if such collectives may be
    preceded by operations that depend on the inputs.
    """
    everyone = frozenset(processes)
    reached = {process: frozenset((process,)) for process in processes}
    chosen: list[Op] = []
    for op in body.ops:
        inner = [each for block in op.blocks for each in block.walk()]
        if op.spec.effect or any(each.spec.collective or each.spec.effect for each in inner):
            return ()
        if is_started(op):
            return ()  # No message may be in flight when the error is raised.
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


def dissemination_rounds(processes: Sequence[int], index: int) -> Iterator[tuple[int, int]]:
    """Yield the receiver and the sender of a process for each round of dissemination."""
    place, count, distance = processes.index(index), len(processes), 1
    while distance < count:
        yield processes[(place + distance) % count], processes[(place - distance) % count]
        distance *= 2
