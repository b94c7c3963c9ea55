"""Sharding rules in user notation have the same meaning as in JAX."""

import random
import re

import pytest

from shardir.errors import RuleError
from shardir.op_rules.factor_rule_text import parse_rule, show_shardy
from shardir.op_rules.rule_notation import sharding_rule

pytest.importorskip("jax")

from jax._src.custom_partitioning_sharding_rule import (
    sdy_sharding_rule_to_mlir,
    str_to_sdy_sharding_rule,
)
from jax._src.interpreters import mlir
from jax._src.lib.mlir import ir

KINDS = ("reduction", "need_replication", "permutation")
Tensor = tuple[str, tuple[int, ...]]


def random_tensor(rng: random.Random, sizes: dict[str, int]) -> Tensor:
    """Return a tensor in notation and its shape, which are occasionally inconsistent."""
    names = rng.sample(sorted(sizes), rng.randint(0, len(sizes)))
    words, shape = [], []
    if rng.random() < 0.3:
        words.append(rng.choice(("...", "...1")))
        shape += [2] * rng.choice((1, 1, 1, 2))
    while names:
        one = names.pop()
        if names and rng.random() < 0.3:
            other = names.pop()
            words.append(f"({one} {other})")
            shape.append(sizes[one] * sizes[other])
        else:
            words.append(one)
            shape.append(sizes[one] if rng.random() < 0.97 else 5)
    return " ".join(words), tuple(shape)


def theirs(
    text: str, kinds: dict[str, tuple[str, ...]], sizes: dict[str, int],
    operands: list[Tensor], results: list[Tensor],
) -> str | None:  # fmt: skip
    f32 = ir.F32Type.get()
    try:
        rule = str_to_sdy_sharding_rule(
            text, **{f"{kind}_factors": names for kind, names in kinds.items()}, **sizes
        )
        types = [[ir.RankedTensorType.get(shape, f32) for _, shape in side]
                 for side in (operands, results)]  # fmt: skip
        return str(sdy_sharding_rule_to_mlir(rule, *types))
    except ValueError:
        return None


@pytest.mark.parametrize("seed", range(4))
def test_notation_means_the_same(seed: int) -> None:
    rng = random.Random(seed)
    refused = 0
    with mlir.make_ir_context(), ir.Location.unknown():
        for _ in range(200):
            all_sizes = {name: rng.choice((1, 2, 3, 4)) for name in "ijklm"[: rng.randint(1, 5)]}
            operands = [random_tensor(rng, all_sizes) for _ in range(rng.randint(1, 3))]
            results = [random_tensor(rng, all_sizes) for _ in range(rng.randint(1, 2))]
            text = " -> ".join(
                ", ".join(words for words, _ in side) for side in (operands, results)
            )
            alone = re.sub(r"\([^)]*\)", "", text)
            sizes = {name: size for name, size in all_sizes.items()
                     if name in text and name not in alone and rng.random() < 0.98}  # fmt: skip
            kinds = {kind: tuple(name for name in all_sizes if name in text
                                 and rng.random() < 0.1) for kind in KINDS}  # fmt: skip
            expected = theirs(text, kinds, sizes, operands, results)
            try:
                rule = sharding_rule(text, sizes=sizes, **kinds).for_shapes(
                    [shape for _, shape in operands], [shape for _, shape in results]
                )
            except RuleError:
                assert expected is None, text
                refused += 1
            else:
                assert expected is not None, text
                assert parse_rule(expected) == parse_rule(show_shardy(rule)) == rule
    assert 0 < refused < 100
