"""The sentences that say why a program communicates."""

from dataclasses import dataclass

from shardir.factors import FactorRule, Kind
from shardir.ir import Op, Value
from shardir.mesh import Mesh
from shardir.passes.align import Alignment
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
