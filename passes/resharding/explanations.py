"""Texts of `why`: why a program communicates."""

from collections.abc import Sequence
from dataclasses import dataclass

from shardir import ops
from shardir.ir.mesh import Mesh
from shardir.ir.module import Op, Value
from shardir.ir.sharding import Axes, Sharding, count_positions
from shardir.op_rules.factors import FactorKind, FactorRule
from shardir.passes.resharding.align import Alignment, shardable_factors
from shardir.passes.resharding.uneven import paddable_factors, uneven_dims
from shardir.text.printer import format_axis

REDUCTION_NOUNS = {"add": "sum", "mul": "product", "max": "maximum", "min": "minimum"}
"""Noun for the result of each reduction."""


LENIENT_CHOICE = "explicit_sharding=lenient"
"""Start of the `why` of an operation whose result has a sharding that the program leaves open."""


@dataclass(frozen=True, slots=True)
class Explanations:
    """Formats shardings on one mesh and the reasons for reshards."""

    mesh: Mesh

    def format_sharding(self, sharding: Sharding) -> str:
        """Return a sharding as text, such as `[data, -]`, with its unreduced axes."""
        dims = ", ".join(self.format_axes(dim.axes) for dim in sharding.dims)
        pending = (
            f" unreduced over {self.format_axes(sharding.unreduced)}" if sharding.unreduced else ""
        )
        return f"[{dims}]{pending}"

    def format_axes(self, axes: Axes) -> str:
        shown = [format_axis(axis, self.mesh) for axis in axes]
        return f"({', '.join(shown)})" if len(shown) > 1 else "".join(shown) or "-"

    def explain_operand(
        self, op: Op, operand: int, sharding: Sharding, cuttable: bool = True
    ) -> str:
        """Explain why an operand is resharded."""
        verb = "needs" if cuttable else "cannot be sharded and needs"
        result = f"%{op.results[0].name} = " if op.results else ""
        return f"operand {operand} of {result}{op.name} {verb} {self.format_sharding(sharding)}"

    def explain_lost_axes(
        self, op: Op, value: Value, operand: int, rule: FactorRule, fitting: Alignment
    ) -> str:
        """Return a clause that states which factors lose the axes that an operand loses."""
        if value.sharding is None:
            return ""
        cuttable = shardable_factors(op, rule)
        reasons: dict[str, None] = {}
        for dim, loops in zip(value.sharding.dims, rule.operands[operand], strict=True):
            remaining_axes = [axis for i in loops for axis in fitting.factor_axes[i]]
            lost = tuple(a for a in dim.axes if not any(a.overlaps(b) for b in remaining_axes))
            if not lost or not loops:
                continue
            name = factor_name(op, rule, loops[0])
            unshardable = [i for i in loops if i not in cuttable]
            other = [
                i
                for i, axes in enumerate(fitting.factor_axes)
                if any(a.overlaps(b) for a in lost for b in axes)
            ]
            if unshardable:
                reasons[f"{factor_name(op, rule, unshardable[0])} must be unsharded"] = None
            elif other:
                names = " and ".join(dict.fromkeys(factor_name(op, rule, i) for i in other))
                reasons[f"{self.format_axes(lost)} shards {names}, not {name}"] = None
            else:
                reasons[f"{name} is not sharded over {self.format_axes(lost)}"] = None
        return f": {' and '.join(reasons)}" if reasons else ""

    def explain_scan_operand(self, op: Op, operand: int) -> str:
        """Return a clause that states that a scan iterates over a sharded dimension of an
        operand, and which dimension to shard instead."""
        value = op.operands[operand]
        is_iterated = op.spec is ops.scan and operand >= op.attrs["carries"]
        if not is_iterated or value.sharding is None:
            return ""
        lost = value.sharding.dims[0].axes
        if not lost:
            return ""
        axes = self.format_axes(lost)
        count = count_positions(lost)
        others = [
            d
            for d, (dim, size) in enumerate(zip(value.sharding.dims, value.type.shape, strict=True))
            if not dim.axes and size and size % count == 0
        ]
        instead = f"dimension {others[0]}" if others else "another dimension"
        return (
            f": it iterates over dimension 0 of %{value.name}, which is sharded over {axes}; "
            f"shard {instead} instead"
        )

    def explain_communication(self, op: Op, rule: FactorRule) -> str:
        """Explain why an operation communicates while it runs on shards."""
        sharded_factors: dict[int, Axes] = {}
        for value, mapping in zip(op.operands, rule.operands, strict=True):
            dims = value.sharding.dims if value.sharding else ()
            for dim, loops in zip(dims, mapping, strict=False):
                if dim.axes:
                    sharded_factors |= dict.fromkeys(loops, dim.axes)
        inner = [i for i in sharded_factors if rule.factors[i].kind is not FactorKind.PASS] or list(
            sharded_factors
        )
        along = " and ".join(
            f"{factor_name(op, rule, i)}, "
            f"which is sharded over {self.format_axes(sharded_factors[i])}"
            for i in inner
        )
        return f"%{op.results[0].name} = {op.name} runs along {along}"

    def explain_missing_padding(
        self,
        op: Op,
        operand: int,
        ends: tuple[Value, Sharding],
        rule: FactorRule | None,
        uneven: str,
    ) -> str:
        """Return a clause that names the uneven axes that an operand loses because it is not
        padded.

        `ends` are the operand and the sharding that the operation needs.
        """
        (value, sharding), cause = ends, f"{op.name} cannot pad"
        kept: set[int] = set()
        if uneven != "pad":
            cause = f"the pass has uneven={uneven}"
        elif rule is not None:
            paddable = set(paddable_factors(op, rule))
            kept = {d for d, each in enumerate(rule.operands[operand]) if paddable.issuperset(each)}
        kept.update(uneven_dims(sharding, value.type.shape))
        odd = [
            f"{value.type.shape[d]} does not divide over "
            f"{self.format_axes(value.sharding.dims[d].axes)}"
            for d in uneven_dims(value.sharding, value.type.shape)
            if value.sharding and d not in kept
        ]
        return f", since {' and '.join(odd)} and {cause}" if odd else ""

    def explain_new_padding(self, operands: Sequence[Value], results: Sequence[Value]) -> str:
        """Describe the padding that results have and operands do not."""
        old_sizes = {size for value in operands for size in self.padded_sizes(value).values()}
        new = {
            f"dimension {d} of %{value.name} is padded from {ends[0]} to {ends[1]}": None
            for value in results
            for d, ends in self.padded_sizes(value).items()
            if ends not in old_sizes
        }
        return " and ".join(new)

    def padded_sizes(self, value: Value) -> dict[int, tuple[int, int]]:
        """Return the size of each padded dimension of a value, and the end of its last shard."""
        sharding, shape = value.sharding, value.type.shape
        ends = {}
        for d in uneven_dims(sharding, shape):
            assert sharding is not None
            count = sharding.dims[d].num_shards
            ends[d] = shape[d], -(-shape[d] // count) * count
        return ends

    def explain_uneven(self, sharding: Sharding, value: Value, dim: int) -> str:
        """Return the error text for axes that do not divide a dimension and may not be padded."""
        dim_sharding, size = sharding.dims[dim], value.type.shape[dim]
        shards = dim_sharding.num_shards
        return (
            f"dimension {dim} of %{value.name} has size {size}, which is not divisible by "
            f"{shards}: it is sharded over {self.format_axes(dim_sharding.axes)}; pad it to "
            f"{-(-size // shards) * shards}, shard it otherwise, or set uneven=pad"
        )

    def explain_result(
        self,
        op: Op,
        result: Value,
        raw: Value,
        rule: FactorRule | None,
        fitting: Alignment | None,
    ) -> str:
        """Explain why an operation computes `raw` although `result` is needed."""
        sharding = raw.sharding or Sharding.fully_replicated(self.mesh.name, raw.type.rank)
        required = result.sharding or Sharding.fully_replicated(self.mesh.name, result.type.rank)
        if rule and fitting and sharding.unreduced:
            loops = [i for i in rule.of_kind(FactorKind.REDUCE) if fitting.factor_axes[i]]
            word = REDUCTION_NOUNS[sharding.reduction]
            over = " and ".join(factor_name(op, rule, i) for i in loops)
            return f"{word} over {over} of %{result.name} = {op.name}{format_lenient_choice(op)}"
        name = f"%{result.name} = {op.name}"
        computed, needed = self.format_sharding(sharding), self.format_sharding(required)
        return (
            f"{name} is computed with the sharding {computed} and needed with {needed}"
            f"{format_lenient_choice(op)}"
        )


def format_lenient_choice(op: Op) -> str:
    """Return a clause with the choice of a lenient mode that an operation states."""
    return f" ({op.why})" if op.why.startswith(LENIENT_CHOICE) else ""


def factor_name(op: Op, rule: FactorRule, factor: int) -> str:
    """Return the name of a factor for users: its einsum letter, else a dimension that it covers."""
    letter = einsum_letter(op, rule, factor)
    if letter is not None:
        return letter
    for value, mapping in zip((*op.operands, *op.results), rule.tensors, strict=True):
        for dim, factors in enumerate(mapping):
            if factor in factors:
                return f"dimension {dim} of %{value.name}"
    return "a factor"


def einsum_letter(op: Op, rule: FactorRule, factor: int) -> str | None:
    """Return the quoted letter of a factor in the subscripts of an operation, if it has one."""
    subscripts = op.attrs.get("dims")
    if not isinstance(subscripts, str):
        return None
    letters = "".join(subscripts.partition("->")[0].split(","))
    dims = [factors for mapping in rule.operands for factors in mapping]
    for letter, factors in zip(letters, dims, strict=True):
        if factors == (factor,) and not letter.isdigit():
            return repr(letter)
    return None
