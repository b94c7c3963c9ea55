"""Interprets a per-device program on the devices of one process, with messages to other processes.

All operations but collectives are executed by the NumPy executor. The result of a started
collective is waited for where it is first used, so that messages overlap with computation.

This class runs any program on any devices; if the devices of each process form a block of the mesh,
`shardir.backends.distributed.compiled_program` is faster.
"""

from collections.abc import Sequence
from typing import Any

from shardir.backends.base import Array, InputCheck, Shards
from shardir.backends.distributed.collective_routes import CollectiveRoute, FinishCollective
from shardir.backends.distributed.device_ownership import DeviceOwnership
from shardir.backends.distributed.route_selection import select_route
from shardir.backends.distributed.session import ProgramSession
from shardir.backends.distributed.world import World
from shardir.backends.numpy.executor import Environment, NumPyExecutable as LocalProgram, PreparedOp
from shardir.ir.mesh import Mesh
from shardir.ir.module import Module, Op, Value, spmd_mesh_of
from shardir.ops.communication.async_collectives import done, is_started
from shardir.ops.control_flow.pipelines import pipeline_call
from shardir.verify.divergence import find_differing


class InterpretedProgram(LocalProgram):
    """A partitioned module on devices of several processes, interpreted."""

    passes = ""

    def __init__(
        self, module: Module, owners: Sequence[int], world: World, *, checks_inputs: bool
    ) -> None:
        function = module.main
        mesh = spmd_mesh_of(module) if function.spmd else Mesh("one", (), (0,))
        self._places = DeviceOwnership(mesh, tuple(owners), world.index)
        super().__init__(module, self._places.local_devices)
        self._session = ProgramSession(module, owners, world, "NumPy", checks_inputs)
        self._results = len(function.body.returns)
        self._routes: dict[Op, CollectiveRoute] = {}
        self._in_flight: dict[Value, FinishCollective] = {}
        if self._places.local_devices and function.spmd:
            axes = find_differing(function)
            for op in function.body.walk():
                if op.spec.collective:
                    differing = axes.get(op.operands[0], ())
                    self._routes[op] = select_route(op, differing, self._places)
            links = {op: route.links for op, route in self._routes.items()}
            self._session.select_carriers(function.body, links)

    def __call__(self, args: Sequence[Shards]) -> list[list[Array]]:
        return self._checked_run(args, None)

    def run_checked(self, args: Sequence[Shards], check: InputCheck) -> list[list[Array]]:
        return self._checked_run(args, check)

    def _checked_run(self, args: Sequence[Shards], check: InputCheck | None) -> list[list[Array]]:
        if not self._places.local_devices:
            return [[] for _ in range(self._results)]
        with self._session.run(check):
            return super().__call__(args)

    def begin(self) -> None:
        self._session.begin()

    def _exchange(self, step: PreparedOp, env: Environment) -> None:
        op = step.op
        if op not in self._routes:
            self._bind_results(op, _compute_device_value(self._places, step, env), env)
            return
        call = self._session.next_call(op, self._places)
        finish = self._routes[op].start(env[op.operands[0]], call)
        if is_started(op):
            self._in_flight[op.results[0]] = finish
            env[op.results[0]] = []
        else:
            env[op.results[0]] = finish()
            self._session.finish(op, call)

    def _compute(self, step: PreparedOp, env: Environment) -> None:
        if step.op.spec is done:
            env[step.op.results[0]] = self._in_flight.pop(step.op.operands[0])()
        else:
            super()._compute(step, env)


def _compute_device_value(places: DeviceOwnership, step: PreparedOp, env: Environment) -> list[Any]:
    """Compute an operation that depends on the device alone, such as its slice of an operand, or
    that exchanges data with other processes itself."""
    given = list(zip(*(env[value] for value in step.op.operands), strict=True))
    operands = dict(zip(places.local_devices, given, strict=bool(given)))
    # Devices of other processes are given the operands of a device of this process, or none.
    some = given[0] if given and step.op.spec is not pipeline_call else ()
    made = step.run(places.mesh, [operands.get(d, some) for d in range(places.mesh.size)])
    return [made[device] for device in places.local_devices]
