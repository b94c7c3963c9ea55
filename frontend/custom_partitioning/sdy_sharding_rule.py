"""Rules of custom partitioning as objects, with the names of JAX."""

from collections.abc import Sequence

from shardir.errors import RuleError
from shardir.frontend.call_signatures import with_constructor_errors
from shardir.op_rules.rule_notation import ShardingRule, sharding_rule

BATCHING = "…"
"""The leading dimensions of a tensor in an `ArrayMapping`, any number of them; a digit behind it
distinguishes several groups."""


@with_constructor_errors
class CompoundFactor(tuple[str, ...]):
    """A dimension that consists of several factors, major to minor: `CompoundFactor("b", "c")`."""

    def __new__(cls, *factors: str) -> "CompoundFactor":
        """Return the dimension; raises `RuleError` for fewer than two factors."""
        if len(factors) < 2 or not all(isinstance(factor, str) for factor in factors):
            raise RuleError(f"CompoundFactor takes at least two names of factors, got {factors!r}")
        return super().__new__(cls, factors)


@with_constructor_errors
class ArrayMapping(tuple[str | CompoundFactor, ...]):
    """The factor or the `CompoundFactor` of each dimension of a tensor, after an optional
    `BATCHING`."""

    def __new__(cls, *dims: str | CompoundFactor) -> "ArrayMapping":
        """Return the mapping; raises `RuleError` for other entries."""
        for i, dim in enumerate(dims):
            if not isinstance(dim, (str, CompoundFactor)):
                raise RuleError(
                    f"entry {i} of ArrayMapping is {dim!r}; name a factor or give a CompoundFactor"
                )
        return super().__new__(cls, dims)


@with_constructor_errors
class SdyShardingRule:
    """The factor rule of a partitioned function: an `ArrayMapping` for each operand and result.

    A factor passes shardings through unless one of the keyword arguments lists it. The size of a
    factor that occurs only in compound factors is a keyword argument. Raises `RuleError` for
    invalid rules.
    """

    def __init__(
        self,
        operand_mappings: Sequence[Sequence[str | Sequence[str]]],
        result_mappings: Sequence[Sequence[str | Sequence[str]]],
        *,
        reduction_factors: Sequence[str] = (),
        need_replication_factors: Sequence[str] = (),
        permutation_factors: Sequence[str] = (),
        **factor_sizes: int,
    ) -> None:
        self.operand_mappings = operand_mappings
        self.result_mappings = result_mappings
        self.factor_sizes = factor_sizes
        self.reduction_factors = reduction_factors
        self.need_replication_factors = need_replication_factors
        self.permutation_factors = permutation_factors
        text = f"{_format_side(operand_mappings)} -> {_format_side(result_mappings)}"
        self.rule: ShardingRule = sharding_rule(
            text,
            reduction=tuple(reduction_factors),
            need_replication=tuple(need_replication_factors),
            permutation=tuple(permutation_factors),
            sizes=factor_sizes,
        )

    def __repr__(self) -> str:
        return f"SdyShardingRule({str(self.rule)!r})"


def _format_side(mappings: Sequence[Sequence[str | Sequence[str]]]) -> str:
    """Return the tensors of one side in the notation of rules."""
    if isinstance(mappings, str) or any(isinstance(mapping, str) for mapping in mappings):
        raise RuleError(
            f"SdyShardingRule takes a mapping for each tensor, such as (('i', 'j'),), got "
            f"{mappings!r}"
        )
    return ", ".join(" ".join(map(_format_dim, mapping)) for mapping in mappings)


def _format_dim(dim: str | Sequence[str]) -> str:
    if isinstance(dim, str):
        return dim.replace(BATCHING, "...", 1)
    return f"({' '.join(dim)})"
