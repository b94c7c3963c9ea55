"""The time of a collective on one link, and over several links (hierarchically).

`nbytes` is the larger of the operand and the result on one device: the buffer of an all-reduce, the
result of an all-gather, the operand of a reduce-scatter. With the ring algorithm each device sends
2(g-1)/g of it in an all-reduce over g devices, (g-1)/g in an all-gather, a reduce-scatter or an
all-to-all, and all of it in a collective-permute. The time is the latency plus this traffic divided
by the bandwidth. Measured collectives of the description replace this where it has some.

Over several links, a collective is hierarchical, with one collective on each link, or its rings
pass through all devices: each link then carries its part of the rings at the same time.
"""

from collections.abc import Sequence
from math import ceil, log2, prod

from shardir.machine.collective_table import CollectiveTable
from shardir.machine.description import AlphaBeta, Link
from shardir.machine.placement import Level

HALVES_OF_ALL_REDUCE = ("all-gather", "reduce-scatter")
"""A ring all-reduce is a reduce-scatter followed by an all-gather; each takes half of its time."""


def traffic(kind: str, group: int, nbytes: float) -> float:
    """Return the bytes that each device sends with a ring algorithm."""
    if kind == "collective-permute":
        return nbytes
    return (2 if kind == "all-reduce" else 1) * (group - 1) / group * nbytes


def time_over_levels(kind: str, nbytes: float, levels: Sequence[Level]) -> float:
    """Return the seconds of a collective over groups that extend over levels, innermost first.

    Permutes take the time of the outermost link, which some of the pairs cross.
    """
    by_link: dict[str, list[Level]] = {}
    for level in levels:
        by_link.setdefault(level.link.name, []).append(level)
    groups = list(by_link.values())
    if not groups:
        return 0.0
    if kind == "collective-permute":
        return max(_time_on_link(kind, nbytes, group) for group in groups)
    if len(groups) == 1:
        return _time_on_link(kind, nbytes, groups[0])
    if not groups[-1][0].link.has_rings_across or kind == "all-to-all":
        return _hierarchical_time(kind, nbytes, groups)
    ring = _ring_time(kind, nbytes, groups)
    # NCCL chooses the algorithm of an all-reduce by its time.
    return min(ring, _hierarchical_time(kind, nbytes, groups)) if kind == "all-reduce" else ring


def _hierarchical_time(kind: str, nbytes: float, groups: Sequence[Sequence[Level]]) -> float:
    """Return the seconds of a collective on each link in turn, innermost first.

    All-reduces are a reduce-scatter inside, an all-reduce outside of the shards, and an all-gather
    inside.
    """
    inner, *outer = groups
    if not outer:
        return _time_on_link(kind, nbytes, inner)
    shard = nbytes / prod(level.size for level in inner)
    if kind == "all-reduce":
        return (
            _time_on_link("reduce-scatter", nbytes, inner)
            + _hierarchical_time("all-reduce", shard, outer)
            + _time_on_link("all-gather", nbytes, inner)
        )
    outside = nbytes if kind == "all-to-all" else shard
    return _time_on_link(kind, nbytes, inner) + _hierarchical_time(kind, outside, outer)


def _ring_time(kind: str, nbytes: float, groups: Sequence[Sequence[Level]]) -> float:
    """Return the seconds of a collective along rings through all devices of several links.

    The devices inside divide the bytes that cross a link between them. A step between two devices
    takes the time of one message on their link; the messages of all links overlap, so that the
    slowest link determines the bandwidth.
    """
    rounds = 2 if kind == "all-reduce" else 1
    latency = groups[-1][0].link.latency
    slowest, inside = 0.0, 1
    total = prod(level.size for group in groups for level in group)
    for group in groups:
        link, size = group[0].link, prod(level.size for level in group)
        # One of the devices of each inner group sends to the next inner group.
        steps = total // inside - total // (inside * size) if group is not groups[-1] else size - 1
        latency += rounds * steps * link.hop_latency
        sent = traffic(kind, total, nbytes) / inside
        slowest = max(slowest, link.bandwidth.seconds(sent))
        inside *= size
    return latency + slowest


def _time_on_link(kind: str, nbytes: float, levels: Sequence[Level]) -> float:
    link = levels[0].link
    group = prod(level.size for level in levels)
    if link.topology == "torus":
        return _time_on_torus(kind, nbytes, levels)
    measured = _time_from_measurements(link, kind, group, nbytes)
    if measured is not None:
        return measured
    steps = _latency_steps(link, kind, group)
    return (
        link.latency
        + link.hop_latency * (steps - 1)
        + link.bandwidth.seconds(traffic(kind, group, nbytes))
    )


def _latency_steps(link: Link, kind: str, group: int) -> int:
    """Return the number of messages that follow each other."""
    if kind == "collective-permute":
        return 1
    if kind == "all-reduce":
        # Networks with switches reduce along a tree if that is shorter.
        ring = 2 * (group - 1)
        return ring if link.topology == "ring" else min(ring, 2 * ceil(log2(group)))
    return group - 1


def _time_from_measurements(link: Link, kind: str, group: int, nbytes: float) -> float | None:
    fit = link.fits.get((kind, group))
    if isinstance(fit, CollectiveTable):
        return fit.interpolate(nbytes)
    if isinstance(fit, AlphaBeta):
        return fit.latency + traffic(kind, group, nbytes) / fit.bandwidth
    sizes = sorted(size for other, size in link.fits if other == kind)
    below = [size for size in sizes if size < group]
    above = [size for size in sizes if size > group]
    if below and above:
        # Between two measured group sizes, the time is interpolated.
        low = _time_from_measurements(link, kind, below[-1], nbytes)
        high = _time_from_measurements(link, kind, above[0], nbytes)
        assert low is not None
        assert high is not None
        position = log2(group / below[-1]) / log2(above[0] / below[-1])
        return low + (high - low) * position
    if not sizes and kind in HALVES_OF_ALL_REDUCE:
        whole = _time_from_measurements(link, "all-reduce", group, nbytes)
        return None if whole is None else whole / 2
    return None


def _time_on_torus(kind: str, nbytes: float, levels: Sequence[Level]) -> float:
    """Return the time on rings: one collective uses all rings of its levels at the same time.

    A ring sends in both directions; in a line, the device at each end has one adjacent device.
    Successive devices of a group at a distance of several links share these links with other
    groups.
    """
    link = levels[0].link
    group = prod(level.size for level in levels)
    hops = sum(level.size // 2 if level.is_ring else level.size - 1 for level in levels)
    ring_directions = sum((2 if level.is_ring else 1) / level.ring_stride for level in levels)
    if kind == "collective-permute":
        return link.latency + link.bandwidth.seconds(nbytes)
    latency = link.latency + link.hop_latency * (hops - 1)
    if kind == "all-reduce":
        latency *= 2
    if kind == "all-to-all":
        # Each link carries what devices on its two sides send each other.
        seconds = max(
            link.bandwidth.seconds(nbytes)
            * level.size
            / (8 if level.is_ring else 4)
            * level.ring_stride
            for level in levels
        )
        return latency + seconds
    return latency + link.bandwidth.seconds(traffic(kind, group, nbytes)) / ring_directions
