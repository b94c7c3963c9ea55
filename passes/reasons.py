"""The sentences that say why a program communicates."""

from collections.abc import Sequence
from dataclasses import dataclass

from shardir.factors import FactorRule, Kind
from shardir.ir import Op, Value
from shardir.mesh import Mesh
from shardir.passes.align import Alignment
from shardir.passes.uneven import uneven_dims
from shardir.placement import Axes, Sharding
from shardir.text.printer import show_axis

WORDS = {"add": "sum", "mul": "product", "max": "maximum", "min": "minimum"}
"""What combining by each reduction is called."""


@dataclass(frozen=True, slots=True)
class Words:
    """Words for shardings on one mesh."""

    mesh: Mesh

    def shown(self, sharding: Sharding) -> str:
        """How a sharding cuts, as in `[data, -]`, and what is pending."""
        dims = ", ".join(self.axes(dim.axes) for dim in sharding.dims)
        pending = f" pending over {self.axes(sharding.unreduced)}" if sharding.unreduced else ""
        return f"[{dims}]{pending}"

    def axes(self, axes: Axes) -> str:
        shown = [show_axis(axis, self.mesh) for axis in axes]
        return f"({', '.join(shown)})" if len(shown) > 1 else "".join(shown) or "-"

    def need(self, op: Op, operand: int, sharding: Sharding, cuttable: bool = True) -> str:
        """Why an operand is moved."""
        verb = "needs" if cuttable else "cannot be cut and needs"
        result = f"%{op.results[0].name} = " if op.results else ""
        return f"operand {operand} of {result}{op.name} {verb} {self.shown(sharding)}"

    def cannot_pad(self, op: Op, value: Value, sharding: Sharding) -> str:
        """Which uneven cuts of an operand an operation cannot run with, as a part of a sentence."""
        odd = [
            f"{value.type.shape[d]} does not divide over {self.axes(value.sharding.dims[d].axes)}"
            for d in uneven_dims(value.sharding, value.type.shape)
            if value.sharding and d not in uneven_dims(sharding, value.type.shape)
        ]
        return f", since {' and '.join(odd)} and {op.name} cannot pad" if odd else ""

    def begins(self, operands: Sequence[Value], results: Sequence[Value]) -> str:
        """Which padding results have that operands do not have."""
        known = {size for value in operands for size in self.padded(value).values()}
        new = {
            f"dimension {d} of %{value.name} is padded from {ends[0]} to {ends[1]}": None
            for value in results
            for d, ends in self.padded(value).items()
            if ends not in known
        }
        return " and ".join(new)

    def padded(self, value: Value) -> dict[int, tuple[int, int]]:
        """Where dimensions of a value end, and where their last pieces do, if that differs."""
        sharding, shape = value.sharding, value.type.shape
        ends = {}
        for d in uneven_dims(sharding, shape):
            assert sharding is not None
            count = sharding.dims[d].pieces
            ends[d] = shape[d], -(-shape[d] // count) * count
        return ends

    def uneven(self, sharding: Sharding, value: Value, dim: int) -> str:
        """What to say of a cut that does not divide and may not be padded."""
        cut, size = sharding.dims[dim], value.type.shape[dim]
        return (
            f"dimension {dim} of %{value.name} has size {size}, which is not divisible by "
            f"{cut.pieces}: it is cut over {self.axes(cut.axes)}; pad it to "
            f"{-(-size // cut.pieces) * cut.pieces}, cut it otherwise, or let uneven=pad"
        )

    def reason(
        self,
        op: Op,
        result: Value,
        raw: Value,
        rule: FactorRule | None,
        fitting: Alignment | None,
    ) -> str:
        """Why an operation makes `raw` when `result` is wanted."""
        made = raw.sharding or Sharding.whole(self.mesh.name, raw.type.rank)
        wanted = result.sharding or Sharding.whole(self.mesh.name, result.type.rank)
        if rule and fitting and made.unreduced:
            loops = [i for i in rule.of_kind(Kind.REDUCE) if fitting.cuts[i]]
            word = WORDS[made.reduction]
            over = " and ".join(loop_name(op, rule, i) for i in loops)
            return f"{word} over {over} of %{result.name} = {op.name}"
        return (
            f"%{result.name} = {op.name} is made {self.shown(made)} and wanted {self.shown(wanted)}"
        )


def loop_name(op: Op, rule: FactorRule, factor: int) -> str:
    """What people call a loop: its letter in an einsum, else a dimension that walks it."""
    for i, mapping in enumerate(rule.operands):
        for dim, factors in enumerate(mapping):
            if factor in factors:
                dims = op.attrs.get("dims")
                if isinstance(dims, str) and len(factors) == 1:
                    return repr(dims.partition("->")[0].split(",")[i][dim])
                return f"dimension {dim} of %{op.operands[i].name}"
    return "a loop"
