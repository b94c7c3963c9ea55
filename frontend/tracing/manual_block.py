"""The block of a manual computation that is traced, and the elements of its values.

See `concrete_values`: the operations that a value depends on run as a manual computation of their
own, which stacks the value of all devices.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from shardir.frontend.shardings.mesh import AbstractMesh, Mesh
from shardir.frontend.tracing.concrete_values import ManualBlock
from shardir.frontend.tracing.named_axes import bound_manual_axes, checked_axes
from shardir.frontend.tracing.trace import wrap_value
from shardir.frontend.tracing.varying_axes import varying_axes_of
from shardir.ir.builder import substitute
from shardir.ir.module import Block, Op, Value
from shardir.ir.operation import OPS
from shardir.ir.sharding import Axes, count_positions
from shardir.ops.control_flow.manual_computation import ManualDimAxes, manual_computation
from shardir.passes.autodiff.make_varying import remove_explicit_varying


@dataclass(frozen=True)
class TracedManualBlock(ManualBlock):
    """The block of a manual computation along `axes`, which are the axes `names` of `mesh`.

    Its parameters are shards of `operands`, sharded by `in_axes`.
    """

    mesh: Mesh
    names: tuple[str, ...]
    axes: Axes
    operands: tuple[Value, ...]
    in_axes: tuple[ManualDimAxes, ...]

    def is_shared(self, value: Value) -> bool:
        if set(bound_manual_axes()) != set(checked_axes()):
            return False  # Without check_vma, values count as different on each device.
        return not varying_axes_of([wrap_value(value)])[0]

    def make_operation(
        self,
        params: Sequence[Value],
        ops: Sequence[Op],
        values: Sequence[Value],
        stacks: Mapping[Value, Value],
    ) -> Op:
        rows = [Value(each.type.with_shape((1, *each.type.shape))) for each in values]
        made = [_reshape(each, row) for each, row in zip(values, rows, strict=True)]
        (body,) = remove_explicit_varying(self.axes, Block((), (*ops, *made), tuple(rows)))
        shards = zip(self.operands, self.in_axes, strict=True)
        sharded = dict(zip(params, shards, strict=True))
        operands: list[Value] = []
        taken: list[Value] = []
        in_axes: list[ManualDimAxes] = []
        before: list[Op] = []
        inner: dict[Value, Value] = {}
        for used in body.captures():
            operand, along = sharded.get(used, (used, ((),) * used.type.rank))
            inner[used] = param = Value(used.type)
            if used in stacks:
                operand, along = stacks[used], self._stacked_axes(used)
                param = Value(used.type.with_shape((1, *used.type.shape)))
                before.append(_reshape(param, inner[used]))
            operands.append(operand)
            taken.append(param)
            in_axes.append(along)
        body = substitute(body, inner)
        count = count_positions(self.axes)
        results = [Value(each.type.with_shape((count, *each.type.shape))) for each in values]
        return Op(
            manual_computation,
            tuple(operands),
            tuple(results),
            {
                "axes": self.axes,
                "in_axes": tuple(in_axes),
                "out_axes": tuple(map(self._stacked_axes, values)),
                "check_vma": False,
            },
            (Block(tuple(taken), (*before, *body.ops), body.returns),),
        )

    def _stacked_axes(self, value: Value) -> ManualDimAxes:
        """Return the axes that shard the stack of a value of all devices."""
        return (self.axes, *((),) * value.type.rank)

    def shard_names(self) -> list[str]:
        shape = [range(self.mesh.shape[name]) for name in self.names]
        along = ", ".join(self.names)
        is_whole = self.names == self.mesh.axis_names and not isinstance(self.mesh, AbstractMesh)
        return [
            f"On {self.mesh.devices[place] if is_whole else 'the devices'} at mesh coordinates "
            f"({along}) = ({', '.join(map(str, place))})"
            for place in product(*shape)
        ]


def _reshape(value: Value, result: Value) -> Op:
    return Op(OPS["reshape"], (value,), (result,), {})
