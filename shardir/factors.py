"""Factor rules: an operation's loop structure, written like an einsum.

A factor names one loop of the operation. `bi,ih->bh` says that `dot` loops over `b`, `i` and
`h`, which dimension of each operand and result every loop walks, and that `i` is summed away.
From that one rule follow sharding propagation (a loop is cut everywhere or nowhere),
partitioning (cut loops run on local shapes; a cut reduced loop leaves a pending sum) and
batching (one more loop). A dimension may walk several factors, major to minor, as the sides of a
reshape do. The model is that of OpenXLA Shardy (docs/propagation.md there).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import count
from typing import Self


class Kind(Enum):
    """What it takes to run an operation with a factor cut."""

    PASS = "pass-through"
    """Nothing: every device works on its piece alone."""
    REDUCE = "reduction"
    """The devices' results are combined afterwards by the rule's `reduction`."""
    REPLICATE = "need-replication"
    """It cannot be cut: gathered before the operation."""
    PERMUTE = "permutation"
    """Pieces must be exchanged with neighbours (halos, shifts)."""


@dataclass(frozen=True, slots=True)
class Factor:
    size: int
    kind: Kind = Kind.PASS
    blocked: bool = False
    """Whether propagation may not move along it."""


TensorFactors = tuple[tuple[int, ...], ...]
"""For each dimension of a tensor, the factors it walks, major to minor."""


@dataclass(frozen=True, slots=True)
class FactorRule:
    """`operands` and `results` map tensors to factors, which are indices into `factors`.

    A tensor that takes no part (a scalar that is used whole) has an empty mapping for each of its
    dimensions. `reduction` says how partial results over a cut reduced factor combine; `None`
    when combining is not enough, so that such factors are gathered unless the operation
    declares its own partitioning.
    """

    operands: tuple[TensorFactors, ...]
    results: tuple[TensorFactors, ...]
    factors: tuple[Factor, ...]
    reduction: str | None = "add"

    @property
    def tensors(self) -> tuple[TensorFactors, ...]:
        """Operands, then results."""
        return self.operands + self.results

    def of_kind(self, kind: Kind) -> tuple[int, ...]:
        return tuple(i for i, factor in enumerate(self.factors) if factor.kind is kind)

    def __str__(self) -> str:
        names = [name for name, _ in zip(_names(), self.factors, strict=False)]

        def side(tensors: tuple[TensorFactors, ...]) -> str:
            return ", ".join(
                f"[{', '.join(''.join(names[f] for f in dim) or '1' for dim in tensor)}]"
                for tensor in tensors
            )

        sizes = ", ".join(f"{n}={f.size}" for n, f in zip(names, self.factors, strict=True))
        text = f"({side(self.operands)}) -> ({side(self.results)}) {{{sizes}}}"
        for kind in (Kind.REDUCE, Kind.REPLICATE, Kind.PERMUTE):
            if chosen := self.of_kind(kind):
                text += f" {kind.value}={{{', '.join(names[f] for f in chosen)}}}"
        if any(factor.blocked for factor in self.factors):
            blocked = (n for n, f in zip(names, self.factors, strict=True) if f.blocked)
            text += f" blocked={{{', '.join(blocked)}}}"
        return text


def _names() -> Iterator[str]:
    """i, j, ..., z, then z_1, z_2, ... (Shardy's order)."""
    yield from "ijklmnopqrstuvwxyz"
    yield from (f"z_{n}" for n in count(1))


Shape = Sequence[int]


class RuleBuilder:
    """Collects the factors of one operation, in the order they are added."""

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
        kind: Kind = Kind.PASS,
        *,
        blocked: bool = False,
    ) -> Self:
        """Add a factor that walks the given dimension of each tensor (`None`: takes no part)."""
        for dims, dim in zip(self._dims, (*operands, *results), strict=True):
            if dim is not None:
                dims[dim].append(len(self._factors))
        self._factors.append(Factor(size, kind, blocked))
        return self

    def add_pointwise(self, shape: Shape, *, skip: Sequence[int] = ()) -> Self:
        """Add one pass-through factor a dimension of `shape`, but not for dimensions in `skip`.

        Tensors of rank 0 take no part.
        """
        for dim, size in enumerate(shape):
            if dim not in skip:
                everywhere = [dim if s else None for s in self._shapes]
                self.add(everywhere[: self._operands], everywhere[self._operands :], size)
        return self

    def build(self, reduction: str | None = "add") -> FactorRule:
        """The rule; a dimension without a factor gets one of its own, which nothing can cut.

        Its size is 1: in conflicts, what no loop walks does not make a tensor larger.
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


def pointwise(operands: Sequence[Shape], results: Sequence[Shape]) -> FactorRule:
    """Every dimension of the result is one loop; operands of rank 0 take no part."""
    return RuleBuilder(operands, results).add_pointwise(results[0]).build()


def einsum(dims: str, operands: Sequence[Shape], reduction: str = "add") -> FactorRule:
    """The loops of an einsum such as `bi,ih->bh`, batch, free, then contracted ones.

    Order (it decides ties in propagation): factors in all tensors, then those of each operand
    that the result keeps, then the reduced ones.
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
            Kind.PASS if c in output else Kind.REDUCE,
        )
    return builder.build(reduction)
