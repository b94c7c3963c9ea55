"""State in the memory of the host: transfers in a simulated program.

before: `%m.new, %w.new = fused(%m, %w, %g)`, where `%m` is an argument and `%m.new` a result
after:  `%m = host-to-device()`, `%m.new, %w.new = fused(%m, %w, %g)`, `device-to-host(%m.new)`

The device holds a state from its transfer to the end of its use. States use the memory of earlier
ones: a transfer to the device begins when the states of an earlier operation have left the device.
The operations exist in simulations only; no backend runs them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from shardir.cost.memory import used_by
from shardir.ir.module import Block, Function, Module, Op, SpmdInterface, Value
from shardir.ir.operation import OpSpec
from shardir.ir.types import TensorType

TO_DEVICE = OpSpec("host-to-device", type=lambda *_, result: result)
"""Transfers a state to the device, after its operands are available."""
TO_HOST = OpSpec("device-to-host", type=lambda *_, result: result)
"""Transfers a state to the host; the result is available when it has left the device."""
DIRECTIONS = {TO_DEVICE: "host to device", TO_HOST: "device to host"}
"""The name of the direction of each transfer."""
BUFFER_COUNT = 4
"""The number of operations whose states the device holds at the same time: two for the moments of
one parameter, and two for those of the next one."""


def direction_of(op: Op) -> str | None:
    """Return the direction of a transfer between device and host; `None` for other operations."""
    return DIRECTIONS.get(op.spec)


def transferred_bytes(op: Op) -> int:
    """Return the bytes of a transfer between device and host."""
    value = op.results[0] if op.spec is TO_DEVICE else op.operands[0]
    return value.type.nbytes


def offload_states(module: Module, states: Mapping[int, int] | None) -> Module:
    """Return a program of kernels whose states, if any, are in the memory of the host.

    `states` has the number of the result that is the next value of each state, by the number of
    its parameter.
    """
    if not states:
        return module
    main = module.main
    function = _Offloading(main, states).run()
    return replace(module, functions=(function, *module.functions[1:]))


class _Offloading:
    """Rewrites one function. States that one operation uses first are a group."""

    def __init__(self, function: Function, states: Mapping[int, int]) -> None:
        self.function, self.states = function, states
        body = function.body
        self.waiting = {body.params[number] for number in states}
        self.state_of = {
            body.returns[result]: body.params[number] for number, result in states.items()
        }
        self.group_of: dict[Value, int] = {}
        """The group of each state that the device has received."""
        self.left: dict[int, list[Value]] = {}
        """The next states of each group, and the results of their transfers to the host."""

    def run(self) -> Function:
        function, body = self.function, self.function.body
        new_ops: list[Op] = []
        for op in body.ops:
            new_ops += self._loads(op)
            new_ops.append(op)
            new_ops += self._stores(op)
        params, results = set(self.states), set(self.states.values())
        changed = Block(
            _without(body.params, params), tuple(new_ops), _without(body.returns, results)
        )
        spmd = function.spmd
        if spmd is not None:
            spmd = SpmdInterface(_without(spmd.params, params), _without(spmd.results, results))
        stated = _without(function.result_shardings, results)
        return Function(function.name, changed, stated, spmd)

    def _loads(self, op: Op) -> Iterator[Op]:
        """Yield the transfers of the states that an operation is the first to use."""
        used = [value for value in dict.fromkeys(used_by(op)) if value in self.waiting]
        if not used:
            return
        group = len(set(self.group_of.values()))
        before = tuple(self.left.get(group - BUFFER_COUNT, ()))
        for value in used:
            self.waiting.discard(value)
            self.group_of[value] = group
            yield Op(TO_DEVICE, before, (value,), {}, (), op.loc, op.why)

    def _stores(self, op: Op) -> Iterator[Op]:
        """Yield the transfers of the next states that an operation computes."""
        for value in op.results:
            group = self.group_of.get(self.state_of[value]) if value in self.state_of else None
            if group is not None:
                left = Value(TensorType((), "bool"), f"{value.name}.left")
                self.left.setdefault(group, []).extend((value, left))
                yield Op(TO_HOST, (value,), (left,), {}, (), op.loc, op.why)


Item = TypeVar("Item")


def _without(items: Sequence[Item], numbers: set[int]) -> tuple[Item, ...]:
    return tuple(item for number, item in enumerate(items) if number not in numbers)
