"""`Simulation`: the predicted time and memory of one step, and its `Remedy` objects."""

from dataclasses import dataclass, field

from shardir.passes.explain.reports import Report
from shardir.passes.simulation.block_simulation import BlockSimulation
from shardir.passes.simulation.breakdown import Breakdown
from shardir.passes.simulation.memory_use import MemoryUse
from shardir.passes.simulation.work import PICOSECONDS


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change of the user's program, with the simulation of the changed program."""

    changes: tuple[str, ...]
    """The changes in the user's code, such as `donate_argnums=(0, 1)`; all of them together."""
    duration: int
    """The time of one step in picoseconds."""
    peak: int
    """The bytes of each device at the peak."""
    fits: bool
    """True if the changed program fits into the memory."""

    @property
    def step_seconds(self) -> float:
        """The time of one step in seconds."""
        return self.duration / PICOSECONDS


def rank_remedies(remedies: list[Remedy], peak: int) -> tuple[Remedy, ...]:
    """Return the remedies that reduce a peak: those that fit by time, then the others by peak."""
    return tuple(
        sorted(
            (remedy for remedy in remedies if remedy.peak < peak),
            key=lambda each: (
                (0, each.duration, each.peak) if each.fits else (1, each.peak, each.duration)
            ),
        )
    )


@dataclass(frozen=True, slots=True, repr=False)
class Simulation(Report):
    """The time and memory of one step on a machine, on each device.

    `mfu` is the fraction of the machine's peak rate at which the devices process the flops that the
    program needs, `hfu` the fraction with recomputed flops. They are `None` for a program without
    matrix products.
    """

    name: str
    """The name of the program."""
    machine: str
    """The name of the machine."""
    devices: int
    """The number of devices."""
    breakdown: Breakdown
    """The parts of the time, in picoseconds."""
    mfu: float | None
    """The utilization by the flops that the program needs."""
    hfu: float | None
    """The utilization by the flops that the devices execute."""
    memory: MemoryUse
    """The memory at the peak on each device."""
    memory_capacity: int | None
    """The memory of a device in bytes, or `None` if the simulation does not compare it."""
    schedule: BlockSimulation = field(compare=False)
    """The events of the step."""
    notes: tuple[str, ...] = ()
    """Parts of the program that were not simulated exactly, with the reason."""
    lanes: tuple[str, ...] = ()
    """The actions of the rows of each pipeline over time, as lines of text."""
    remedies: tuple[Remedy, ...] = ()
    """Changes with which a program that does not fit needs less memory: those that make it fit by
    time, then the others by peak."""
    evaluated_changes: int = 0
    """The number of changes that were simulated to find the remedies."""

    @property
    def step_seconds(self) -> float:
        """The time of one step in seconds."""
        return self.breakdown.duration / PICOSECONDS

    @property
    def fits(self) -> bool | None:
        """Return whether the program fits into the memory; `None` if no capacity was given."""
        if self.memory_capacity is None:
            return None
        return self.memory.peak <= self.memory_capacity
