"""Custom calls of random programs, each with its own sharding rule."""

from typing import Any

from shardir import ops as ops  # declares the operations
from shardir.ir.module import Value
from shardir.ir.types import TensorType
from shardir.op_rules.factor_rule_text import show_shardy
from shardir.op_rules.factors import Factor, FactorKind, FactorRule, TensorFactors
from shardir.stablehlo.writing.attributes import format_tensor
from tests.shardy.random_programs.program_builder import SIZES, ProgramBuilder


def custom_call(m: ProgramBuilder) -> Any:
    """Add a custom call whose operands have random factors; results have some of them, in any
    order.
    """
    sizes: list[int] = []
    operands, mappings = [], []
    for _ in range(m.random.choice((1, 2, 2, 3))):
        operand, mapping = _operand(m, sizes)
        operands.append(operand)
        mappings.append(mapping)
    walked = sorted({f for mapping in mappings for dim in mapping for f in dim})
    results = [_result(m, walked, sizes) for _ in range(m.random.choice((1, 1, 2)))]
    of_results = {f for mapping in results for dim in mapping for f in dim}
    factors = tuple(
        Factor(size, _kind(m, number in of_results), m.chance(0.1))
        for number, size in enumerate(sizes)
    )
    rule = FactorRule(tuple(mappings), tuple(results), factors)
    types = tuple(
        TensorType(tuple(_size(dim, sizes) for dim in mapping), "f32") for mapping in results
    )
    listed = ", ".join(format_tensor(value.type) for value in operands)
    places = ", ".join("%" for _ in operands)
    return m.b.opaque(
        *operands,
        operation="stablehlo.custom_call @mine",
        head=f"stablehlo.custom_call @mine({places})",
        attributes=f"sdy.sharding_rule = #sdy.op_sharding_rule<{show_shardy(rule)}, custom>",
        types=f": ({listed}) -> ({', '.join(map(format_tensor, types))})",
        rule=str(rule),
        result=types if len(types) > 1 else types[0],
    )


def _size(dim: tuple[int, ...], sizes: list[int]) -> int:
    product = 1
    for factor in dim:
        product *= sizes[factor]
    return product


def _operand(m: ProgramBuilder, sizes: list[int]) -> tuple[Value, TensorFactors]:
    """Return an operand whose dimensions have new factors or factors of previous operands."""
    known = [size for size in sizes if size <= max(SIZES)]
    operand = m.any() if not known or m.chance(0.5) else _on_known_factors(m, known)
    mapping: list[tuple[int, ...]] = []
    used: set[int] = set()
    for size in operand.type.shape:
        fits = [f for f, known in enumerate(sizes) if known == size and f not in used]
        if fits and m.chance(0.8):
            dim: tuple[int, ...] = (m.random.choice(fits),)
        else:
            major = m.random.choice([n for n in range(2, size) if size % n == 0] or [size])
            parts = [major, size // major] if major < size and m.chance(0.4) else [size]
            dim = tuple(range(len(sizes), len(sizes) + len(parts)))
            sizes += parts
        used.update(dim)
        mapping.append(dim)
    return operand, tuple(mapping)


def _on_known_factors(m: ProgramBuilder, sizes: list[int]) -> Value:
    shape = tuple(m.random.sample(sizes, m.random.randint(1, min(3, len(sizes)))))
    return m.like(shape)


def _result(m: ProgramBuilder, walked: list[int], sizes: list[int]) -> TensorFactors:
    chosen = m.random.sample(walked, m.random.randint(1, min(4, len(walked))))
    dims: list[tuple[int, ...]] = []
    while chosen:
        count = 2 if len(chosen) > 1 and 1 not in _sizes(chosen[:2], sizes) and m.chance(0.2) else 1
        dims.append(tuple(chosen[:count]))
        chosen = chosen[count:]
    return tuple(dims)


def _sizes(factors: list[int], sizes: list[int]) -> list[int]:
    return [sizes[factor] for factor in factors]


def _kind(m: ProgramBuilder, in_result: bool) -> FactorKind:
    if not in_result:
        return m.random.choice((FactorKind.REDUCE, FactorKind.REDUCE, FactorKind.REPLICATE))
    return m.random.choice((FactorKind.PASS,) * 5 + (FactorKind.REPLICATE, FactorKind.PERMUTE))
