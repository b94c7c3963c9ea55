"""`Remedy`: a change with which a program needs less memory, and its predicted time and peak."""

from dataclasses import dataclass

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
