"""A per-device program on the devices of one process, exchanging with those of others.

Everything but collectives is what the CPU backend does. A collective that was started is waited
for where its result is first needed, so that messages travel while the process computes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from threading import RLock
from typing import TYPE_CHECKING

from shardir.backends.base import Array, Shards
from shardir.backends.cpu.executor import Environment, Program as LocalProgram, Step
from shardir.backends.mpi.agreement import identity_of
from shardir.backends.mpi.places import Places
from shardir.backends.mpi.reducing import Reducing, is_large
from shardir.backends.mpi.routes import Call, Finish, Moving, Route, Together, Transposing
from shardir.divergence import differing
from shardir.interpret import mesh_of
from shardir.ir import Module, Op, Value
from shardir.mesh import Mesh
from shardir.ops.overlap import done, is_started, kind_of
from shardir.placement import Axes
from shardir.text.printer import show_axis

if TYPE_CHECKING:
    from shardir.backends.mpi.world import World

SMALL_BYTES = 1 << 16
"""Sums of which a process would receive no more than this are combined as one process does."""


@dataclass
class Run:
    """One run of a program: which one it is, and how many collectives it has come to."""

    number: int
    steps: int = 0


class Program(LocalProgram):
    """A partitioned module on devices of several processes."""

    def __init__(self, module: Module, owners: Sequence[int], world: "World") -> None:
        function = module.main
        mesh = mesh_of(module) if function.spmd else Mesh("one", (), (0,))
        self._places = Places(mesh, tuple(owners), world.index)
        super().__init__(module, self._places.local)
        self._world, self._name, self._results = world, function.name, len(function.body.returns)
        self._identity = identity_of(module, self._places.owners)
        self._digest = self._identity.digest
        self._routes: dict[Op, Route] = {}
        self._on_the_way: dict[Value, Finish] = {}
        self._lock, self._now = RLock(), Run(0)
        if self._places.local and function.spmd:
            axes = differing(function)
            for op in function.body.walk():
                if op.spec.collective:
                    self._routes[op] = self._route(op, tuple(axes.get(op.operands[0], ())))

    def _route(self, op: Op, axes: Axes) -> Route:
        classes = self._places.classes(axes)
        kind = kind_of(op)
        if kind == "all-to-all":
            return Transposing(op, classes)
        if kind == "collective-permute":
            return Moving(op, classes)
        if kind != "all-gather" and is_large(op, classes, SMALL_BYTES):
            return Reducing(op, classes)
        return Together(op, classes)

    def __call__(self, args: Sequence[Shards]) -> list[list[Array]]:
        if not self._places.local:
            return [[] for _ in range(self._results)]
        with self._lock:
            self._world.agree(self._identity, self._places.processes)
            before, self._now = self._now, Run(self._world.count("run", self._digest))
            try:
                return super().__call__(args)
            finally:
                self._now = before

    def _exchange(self, step: Step, env: Environment) -> None:
        op = step.op
        if op not in self._routes:
            env[op.results[0]] = _own(self._places, step, env)
            return
        self._now.steps += 1
        mark = self._digest, self._now.number, self._now.steps
        call = Call(self._world.messages, mark, partial(self._told, op, *mark[1:]))
        finish = self._routes[op].start(env[op.operands[0]], call)
        if is_started(op):
            self._on_the_way[op.results[0]] = finish
            env[op.results[0]] = []
        else:
            env[op.results[0]] = finish()

    def _compute(self, step: Step, env: Environment) -> None:
        if step.op.spec is done:
            env[step.op.results[0]] = self._on_the_way.pop(step.op.operands[0])()
        else:
            super()._compute(step, env)

    def _told(self, op: Op, run: int, step: int) -> str:
        named = [
            *op.attrs.get("axes", ()),
            *op.attrs.get("source", ()),
            *op.attrs.get("target", ()),
        ]
        axes = ", ".join(dict.fromkeys(show_axis(axis, self._places.mesh) for axis in named))
        return (
            f"{op.name} %{op.results[0].name} of {self._name} over {axes} "
            f"(collective {step} of run {run})"
        )


def _own(places: Places, step: Step, env: Environment) -> list[Array]:
    """What depends on the device alone: its position, or its slice of what it holds."""
    given = list(zip(*(env[value] for value in step.op.operands), strict=True))
    operands = dict(zip(places.local, given, strict=bool(given)))
    # Devices of other processes stand there with what one of this process has.
    some = given[0] if given else ()
    made = step.run(places.mesh, [operands.get(d, some) for d in range(places.mesh.size)])
    return [made[device] for device in places.local]
