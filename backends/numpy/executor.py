"""Run a per-device program for all devices, operation by operation, in lock step.

Equal work on the same arrays is done once and its result shared: a replicated tensor costs one
computation and one buffer, whatever the number of devices. The distinct shards of a large operation
are computed on several threads. A tensor is dropped after its last use.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from operator import itemgetter
from typing import Any

import numpy as np

from shardir import ops
from shardir.backends.base import Array, Executable, Shards
from shardir.backends.cpu.threads.address_space import THREAD_BYTES, is_too_little_for
from shardir.backends.numpy.kernel_table import kernel_of
from shardir.backends.numpy.marks import record_mark
from shardir.errors import InterpretError, count_noun
from shardir.ir.mesh import Mesh
from shardir.ir.module import Block, Module, Op, Value, spmd_mesh_of

MIN_PARALLEL_BYTES = 1 << 18
"""Operations that read and write less run on the calling thread: dispatch would cost more."""


class Environment(dict[Value, list[Array]]):
    """The shards of every live value, one for each device.

    `active` flags the devices that take part in the operations that run. The other devices are on
    another branch or have left the loop; they compute along in lock step, but must not call
    functions of the host. `None` means all devices.
    """

    active: list[bool] | None = None

    @contextmanager
    def restrict_active(self, active: Sequence[bool]) -> Iterator[None]:
        """Restrict the active devices to those flagged, inside of the block."""
        before = self.active
        pairs = zip(active, before or active, strict=True)
        self.active = [new and old for new, old in pairs]
        try:
            yield
        finally:
            self.active = before


@cache
def _thread_pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=os.cpu_count() or 1, thread_name_prefix="shardir")


os.register_at_fork(after_in_child=_thread_pool.cache_clear)


@dataclass(frozen=True, slots=True)
class PreparedOp:
    """One operation that is ready to run: its kernel, and the values whose last use it is."""

    op: Op
    run: Callable[..., Any]
    bodies: tuple["PreparedBlock", ...]
    dead: tuple[Value, ...]
    parallel: bool


@dataclass(frozen=True, slots=True)
class PreparedBlock:
    """A block that is ready to run."""

    block: Block
    steps: tuple[PreparedOp, ...]


class NumPyExecutable(Executable):
    """A partitioned module as a list of steps.

    It runs for the devices at the positions `local` of the mesh, by default for all of them; a
    subclass implements the exchange with other devices. `isolated` devices share nothing: each has
    its own copy of all its arrays, and computes all of its work.
    """

    def __init__(
        self, module: Module, local: Sequence[int] | None = None, isolated: bool = False
    ) -> None:
        function = module.main
        self._isolated = isolated
        self._mesh = spmd_mesh_of(module) if function.spmd else Mesh("one", (), (0,))
        self._devices = self._mesh.size if local is None else len(local)
        self._body = _prepare_block(function.body, frozenset(function.body.returns))

    def __call__(self, args: Sequence[Shards]) -> list[list[Array]]:
        env = Environment()
        for param, shards in zip(self._body.block.params, args, strict=True):
            if len(shards) != self._devices:
                raise InterpretError(
                    f"%{param.name} has shards for {count_noun(len(shards), 'device')}, "
                    f"the program runs on {self._devices}"
                )
            env[param] = self._copy_if_isolated(shards)
        with np.errstate(all="ignore"):
            self._run(self._body, env)
        return [env[value] for value in self._body.block.returns]

    def _run(self, body: PreparedBlock, env: Environment) -> None:
        for step in body.steps:
            op = step.op
            begin = time.monotonic_ns()
            if op.spec.exchange is not None:
                self._exchange(step, env)
            elif step.bodies:
                _CONTROL_FLOW[op.name](self, step, env)
            else:
                self._compute(step, env)
            if not step.bodies:
                record_mark(op, begin)
            for value in step.dead:
                del env[value]

    def _exchange(self, step: PreparedOp, env: Environment) -> None:
        """Run an operation that depends on other devices, or on the index of the device."""
        op = step.op
        parts = list(zip(*(env[v] for v in op.operands), strict=True))
        self._bind_results(op, step.run(self._mesh, parts or [()] * self._devices), env)

    def _bind_results(self, op: Op, results: Sequence[Any], env: Environment) -> None:
        """Bind the results of each device, which are tuples if there are several."""
        if len(op.results) == 1:
            env[op.results[0]] = self._copy_if_isolated(results)
        else:
            for i, value in enumerate(op.results):
                env[value] = self._copy_if_isolated([result[i] for result in results])

    def _copy_if_isolated(self, shards: Shards) -> list[Array]:
        """Return the shards as a list, each of them copied if devices are isolated."""
        return [shard.copy() for shard in shards] if self._isolated else list(shards)

    def _compute(self, step: PreparedOp, env: Environment) -> None:
        """Run a kernel once for each distinct tuple of operands.

        Isolated devices each run the kernel, except for operations with an effect, which run once
        for equal operands.
        """
        op = step.op
        columns = [env[v] for v in op.operands]
        tasks: dict[tuple[object, ...], tuple[Array, ...]] = {}
        keys: list[tuple[object, ...]] = []
        idle = _idle_devices(op, env)
        for device in range(self._devices):
            if device in idle:
                keys.append(_IDLE_KEY)
                continue
            operands = tuple(column[device] for column in columns)
            key: tuple[object, ...] = tuple(map(id, operands))
            if self._isolated:
                equal = tuple(operand.tobytes() for operand in operands)
                key = equal if op.spec.effect else (device,)
            tasks.setdefault(key, operands)
            keys.append(key)
        if step.parallel and len(tasks) > 1 and not is_too_little_for(THREAD_BYTES):
            compute = _ignore_float_errors(step.run)
            computed = list(_thread_pool().map(lambda operands: compute(*operands), tasks.values()))
        else:
            computed = [step.run(*operands) for operands in tasks.values()]
        if len(op.results) == 1:
            # NumPy turns arrays of rank 0 into scalars.
            computed = [a if type(a) is np.ndarray else np.asarray(a) for a in computed]
        results = dict(zip(tasks, computed, strict=True))
        if idle:
            placeholder = [np.zeros(value.type.shape, value.type.numpy) for value in op.results]
            results[_IDLE_KEY] = placeholder[0] if len(placeholder) == 1 else tuple(placeholder)
        if len(op.results) == 1:
            env[op.results[0]] = [results[key] for key in keys]
        else:
            for i, value in enumerate(op.results):
                env[value] = [results[key][i] for key in keys]

    def _run_while(self, step: PreparedOp, env: Environment) -> None:
        op, (condition, body) = step.op, step.bodies
        carried = [env[v] for v in op.operands]
        running = [True] * self._devices
        while True:
            env.update(zip(condition.block.params, carried, strict=True))
            with env.restrict_active(running):
                self._run(condition, env)
            flags = env[condition.block.returns[0]]
            running = [before and bool(shard) for before, shard in zip(running, flags, strict=True)]
            if not any(running):
                break
            env.update(zip(body.block.params, carried, strict=True))
            with env.restrict_active(running):
                self._run(body, env)
            result = [env[v] for v in body.block.returns]
            # Devices that have left the loop keep their values.
            carried = [
                new if all(running) else _select_shards(running, new, old)
                for new, old in zip(result, carried, strict=True)
            ]
        env.update(zip(op.results, carried, strict=True))

    def _run_scan(self, step: PreparedOp, env: Environment) -> None:
        op, (body,) = step.op, step.bodies
        carries, length = op.attrs["carries"], op.attrs["length"]
        carried = [env[v] for v in op.operands[:carries]]
        stacked = [env[v] for v in op.operands[carries:]]
        rows: list[list[list[Array]]] = [[] for _ in op.results[carries:]]
        backwards = bool(op.attrs.get("reverse"))
        for i in reversed(range(length)) if backwards else range(length):
            slices = [_map_distinct_shards(shards, itemgetter(i)) for shards in stacked]
            env.update(zip(body.block.params, [*carried, *slices], strict=True))
            self._run(body, env)
            carried = [env[v] for v in body.block.returns[:carries]]
            for row, value in zip(rows, body.block.returns[carries:], strict=True):
                row.append(env[value])
        env.update(zip(op.results, carried, strict=False))
        for value, row in zip(op.results[carries:], rows, strict=True):
            env[value] = self._stack_rows(value, row[::-1] if backwards else row)

    def _stack_rows(self, value: Value, rows: list[list[Array]]) -> list[Array]:
        if not rows:
            return [np.empty(value.type.shape, value.type.numpy)] * self._devices
        stacks: dict[tuple[int, ...], Array] = {}
        result = []
        for device in range(self._devices):
            shards = [row[device] for row in rows]
            key = tuple(map(id, shards))
            if key not in stacks:
                stacks[key] = np.stack(shards)
            result.append(stacks[key])
        return result

    def _run_case(self, step: PreparedOp, env: Environment) -> None:
        """Run every branch that a device takes; each device gets the results of its own branch."""
        last = len(step.bodies) - 1
        indices = [int(shard) for shard in env[step.op.operands[0]]]
        chosen = [i if 0 <= i <= last else last for i in indices]
        results: list[list[Array]] = []
        for branch_index in sorted(set(chosen)):
            branch = step.bodies[branch_index]
            takes_branch = [i == branch_index for i in chosen]
            with env.restrict_active(takes_branch):
                self._run(branch, env)
            result = [env[v] for v in branch.block.returns]
            olds = results or result
            results = [
                _select_shards(takes_branch, new, old)
                for new, old in zip(result, olds, strict=True)
            ]
        env.update(zip(step.op.results, results, strict=True))

    def _run_first_block(self, step: PreparedOp, env: Environment) -> None:
        body = step.bodies[0]  # the others define derivatives
        env.update((p, env[v]) for p, v in zip(body.block.params, step.op.operands, strict=True))
        self._run(body, env)
        result = [env[v] for v in body.block.returns]
        env.update(zip(step.op.results, result, strict=True))


_IDLE_KEY = ("idle",)
"""The key of the placeholder results of a device that takes no part in an operation."""


def _idle_devices(op: Op, env: Environment) -> frozenset[int]:
    """Return the devices for which an operation must not call its function of the host."""
    if env.active is None or op.spec not in (ops.callback, ops.pure_callback):
        return frozenset()
    return frozenset(i for i, active in enumerate(env.active) if not active)


_CONTROL_FLOW: dict[str, Callable[[NumPyExecutable, PreparedOp, Environment], None]] = {
    "while": NumPyExecutable._run_while,
    "scan": NumPyExecutable._run_scan,
    "case": NumPyExecutable._run_case,
    "call": NumPyExecutable._run_first_block,
    "checkpoint": NumPyExecutable._run_first_block,
    "custom-jvp": NumPyExecutable._run_first_block,
    "custom-vjp": NumPyExecutable._run_first_block,
    "fused": NumPyExecutable._run_first_block,
    "fused_products": NumPyExecutable._run_first_block,
}


def _select_shards(flags: Sequence[bool], new: Shards, old: Shards) -> list[Array]:
    """Return for each device its shard of `new` where flagged, of `old` elsewhere."""
    return [a if flag else b for flag, a, b in zip(flags, new, old, strict=True)]


def _map_distinct_shards(shards: Shards, function: Callable[[Array], Array]) -> list[Array]:
    """Apply a function to every shard, once for devices that share a shard."""
    results: dict[int, Array] = {}
    for shard in shards:
        if id(shard) not in results:
            results[id(shard)] = function(shard)
    return [results[id(shard)] for shard in shards]


def _ignore_float_errors(run: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a kernel to ignore floating-point errors: NumPy keeps their handling for each thread."""

    def task(*operands: Array) -> Any:
        with np.errstate(all="ignore"):
            return run(*operands)

    return task


def _prepare_block(block: Block, keep: frozenset[Value]) -> PreparedBlock:
    """Find the kernel of each operation and the last use of every value that the block defines."""
    last: dict[Value, int] = {}
    for i, op in enumerate(block.ops):
        last.update(dict.fromkeys(op.results, i))
        last.update(dict.fromkeys(op.uses(), i))
    defined = set(block.values())
    dead: list[list[Value]] = [[] for _ in block.ops]
    for value, i in last.items():
        if value in defined and value not in keep:
            dead[i].append(value)
    steps = tuple(
        PreparedOp(
            op,
            kernel_of(op),
            tuple(_prepare_block(b, frozenset((*b.returns, *b.params))) for b in op.blocks),
            tuple(dying),
            sum(v.type.nbytes for v in (*op.results, *op.operands)) >= MIN_PARALLEL_BYTES,
        )
        for op, dying in zip(block.ops, dead, strict=True)
    )
    return PreparedBlock(block, steps)
