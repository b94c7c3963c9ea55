"""Factor rules: the iteration space of an operation, written like an einsum.

A factor is one index of the operation's iteration space. `bi,ih->bh` states that `dot` has the
factors `b`, `i` and `h`, which dimension of each operand and result each factor maps to, and that
`i` is reduced. Sharding propagation (a factor has one sharding in all tensors), partitioning
(sharded factors run on local shapes; a sharded reduced factor leaves an unreduced result) and
batching (one more factor) follow from that rule. A dimension may map to several factors, major to
minor, as the dimensions of a reshape do. The model is that of OpenXLA Shardy (docs/propagation.md
there).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import count
from typing import Self

from shardir.ir.cached_hash import CachedHash, cache_hash


class FactorKind(Enum):
    """The requirement for running an operation with a factor sharded."""

    PASS = "pass-through"
    """Nothing: every device computes its shard independently."""
    REDUCE = "reduction"
    """The partial results of the devices are combined afterwards by the rule's `reduction`."""
    REPLICATE = "need-replication"
    """The factor cannot be sharded: operands are gathered along it before the operation."""
    PERMUTE = "permutation"
    """Neighbouring devices exchange rows (halos, shifts)."""


@dataclass(frozen=True, slots=True)
class Factor:
    size: int
    kind: FactorKind = FactorKind.PASS
    blocked: bool = False
    """True if propagation along this factor is blocked."""


TensorFactors = tuple[tuple[int, ...], ...]
"""For each dimension of a tensor, the factors that it maps to, major to minor."""


@cache_hash
@dataclass(frozen=True, slots=True)
class FactorRule(CachedHash):
    """`operands` and `results` map tensors to factors, which are indices into `factors`.

    A tensor that does not participate (a scalar operand) has an empty mapping for each of its
    dimensions. `reduction` is the operation that combines partial results over a sharded reduced
    factor; `None` if combination does not suffice, so that such factors are gathered unless the
    operation declares its own partitioning.
    """

    operands: tuple[TensorFactors, ...]
    results: tuple[TensorFactors, ...]
    factors: tuple[Factor, ...]
    reduction: str | None = "add"

    @property
    def tensors(self) -> tuple[TensorFactors, ...]:
        """The operands followed by the results."""
        return self.operands + self.results

    def of_kind(self, kind: FactorKind) -> tuple[int, ...]:
        return tuple(i for i, factor in enumerate(self.factors) if factor.kind is kind)

    def __str__(self) -> str:
        names = [name for name, _ in zip(factor_names(), self.factors, strict=False)]

        def side(tensors: tuple[TensorFactors, ...]) -> str:
            return ", ".join(
                f"[{', '.join(''.join(names[f] for f in dim) or '1' for dim in tensor)}]"
                for tensor in tensors
            )

        sizes = ", ".join(f"{n}={f.size}" for n, f in zip(names, self.factors, strict=True))
        text = f"({side(self.operands)}) -> ({side(self.results)}) {{{sizes}}}"
        for kind in (FactorKind.REDUCE, FactorKind.REPLICATE, FactorKind.PERMUTE):
            if chosen := self.of_kind(kind):
                text += f" {kind.value}={{{', '.join(names[f] for f in chosen)}}}"
        if any(factor.blocked for factor in self.factors):
            blocked = (n for n, f in zip(names, self.factors, strict=True) if f.blocked)
            text += f" blocked={{{', '.join(blocked)}}}"
        return text


def factor_names() -> Iterator[str]:
    """Yield i, j, ..., z, then z_1, z_2, ... (Shardy's order)."""
    yield from "ijklmnopqrstuvwxyz"
    yield from (f"z_{n}" for n in count(1))


Shape = Sequence[int]


class RuleBuilder:
    """Collects the factors of one operation in the order of addition."""

    def __init__(self, operands: Sequence[Shape], results: Sequence[Shape]) -> None:
        self._shapes = [tuple(shape) for shape in (*operands, *results)]
        self._operands = len(operands)
        self._dims: list[list[list[int]]] = [[[] for _ in shape] for shape in self._shapes]
        self._factors: list[Factor] = []

    def add(
        self,
        operands: Sequence[int | None],
        results: Sequence[int | None],
        size: int,
        kind: FactorKind = FactorKind.PASS,
        *,
        blocked: bool = False,
    ) -> Self:
        """Add a factor that maps to the given dimension of each tensor (`None`: not mapped)."""
        for dims, dim in zip(self._dims, (*operands, *results), strict=True):
            if dim is not None:
                dims[dim].append(len(self._factors))
        self._factors.append(Factor(size, kind, blocked))
        return self

    def add_pointwise(self, shape: Shape, *, skip: Sequence[int] = ()) -> Self:
        """Add one pass-through factor per dimension of `shape`, except for dimensions in `skip`.

        Tensors of rank 0 are not mapped.
        """
        for dim, size in enumerate(shape):
            if dim not in skip:
                everywhere = [dim if s else None for s in self._shapes]
                self.add(everywhere[: self._operands], everywhere[self._operands :], size)
        return self

    def build(self, reduction: str | None = "add") -> FactorRule:
        """Return the rule. A dimension without a factor gets one of its own that cannot be sharded.

        Its size is 1, so that it does not count towards tensor size when conflicts are resolved.
        """
        for dims in self._dims:
            for dim in dims:
                if not dim:
                    dim.append(len(self._factors))
                    self._factors.append(Factor(1))
        tensors = tuple(tuple(tuple(dim) for dim in dims) for dims in self._dims)
        return FactorRule(
            tensors[: self._operands], tensors[self._operands :], tuple(self._factors), reduction
        )


def pointwise_rule(operands: Sequence[Shape], results: Sequence[Shape]) -> FactorRule:
    """Return the rule in which each result dimension is a factor; scalars are not mapped."""
    return RuleBuilder(operands, results).add_pointwise(results[0]).build()


def einsum_rule(dims: str, operands: Sequence[Shape]) -> FactorRule:
    """Return the rule of an einsum such as `bi,ih->bh`.

    The order of factors decides ties in propagation: batch factors (in all tensors), free factors
    of each operand, then contracted factors.
    """
    inputs, output = dims.split("->")
    terms = inputs.split(",")
    sizes = {c: n for term, shape in zip(terms, operands, strict=True)
             for c, n in zip(term, shape, strict=True)}  # fmt: skip
    seen = "".join(dict.fromkeys("".join(terms)))
    batch = [c for c in seen if c in output and all(c in term for term in terms)]
    free = [c for term in terms for c in term if c in output and c not in batch]
    reduced = [c for c in seen if c not in output]
    builder = RuleBuilder(operands, [tuple(sizes[c] for c in output)])
    for c in (*batch, *dict.fromkeys(free), *reduced):
        builder.add(
            [term.find(c) if c in term else None for term in terms],
            [output.find(c) if c in output else None],
            sizes[c],
            FactorKind.PASS if c in output else FactorKind.REDUCE,
        )
    return builder.build("add")
