"""What the runs of one program have in common, in each of its processes."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from threading import RLock
from typing import TYPE_CHECKING

from shardir.backends.mpi.agreement import identity_of
from shardir.backends.mpi.notes import Place
from shardir.backends.mpi.places import Places
from shardir.backends.mpi.routes import Call
from shardir.ir import Module, Op
from shardir.text.printer import show_axis

if TYPE_CHECKING:
    from shardir.backends.mpi.world import World


@dataclass
class Run:
    """One run of a program: which one it is, and how many collectives it has come to."""

    number: int
    steps: int = 0


class Session:
    """A program on devices of several processes, as these see one another.

    Its messages are marked by the program, the run, and the collective that they belong to.
    """

    def __init__(
        self, module: Module, owners: Sequence[int], world: "World", compiler: str
    ) -> None:
        self._world, self._name = world, module.main.name
        self._identity = identity_of(module, tuple(owners), compiler)
        self._digest = self._identity.digest
        self._processes = tuple(sorted(set(owners)))
        self._lock, self._now = RLock(), Run(0)

    def begin(self) -> None:
        """Make sure that all processes have the same program."""
        self._world.agree(self._identity, self._processes)

    @contextmanager
    def run(self) -> Iterator[None]:
        """A run, which begins when all processes are known to have the same program."""
        with self._lock:
            self.begin()
            before, self._now = self._now, Run(self._world.count("run", self._digest))
            try:
                yield
            finally:
                self._now = before

    def call(self, op: Op, places: Places) -> Call:
        """The next collective of this run."""
        self._now.steps += 1
        number, step = self._now.number, self._now.steps
        what = partial(self._told, op, places, number, step)
        return Call(self._world.messages, (self._digest, number, step), what)

    def _told(self, op: Op, places: Places, run: int, step: int) -> Place:
        named = [
            *op.attrs.get("axes", ()),
            *op.attrs.get("source", ()),
            *op.attrs.get("target", ()),
        ]
        axes = ", ".join(dict.fromkeys(show_axis(axis, places.mesh) for axis in named))
        words = (
            f"{op.name} %{op.results[0].name} of {self._name} over {axes} "
            f"(collective {step} of run {run})"
        )
        return Place(words, self._identity.brief)
