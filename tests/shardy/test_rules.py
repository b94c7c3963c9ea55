"""The factor rule of every StableHLO operation agrees with Shardy's rule."""

import pytest

pytest.importorskip("jaxlib")

from shardir.stablehlo.printer import show
from shardir.stablehlo.writing.decompositions import CUSTOM_CALL_OPERATIONS
from tests.op_sample import Sample
from tests.samples import SAMPLES, some_of_each
from tests.shardy.oracle import number_ops, rule_of
from tests.shardy.rule_text import loops
from tests.shardy.stablehlo_support import is_expressible

OWN = (
    "sharding_constraint",
    "optimization_barrier",
    "stop_gradient",
    "random_bits",
    "random_split",
    "random_fold_in",
    "random_hash",
    "propagation_barrier",
    *CUSTOM_CALL_OPERATIONS,
)
"""Operations that Shardy treats by other means than a rule, or does not have."""
ABOVE = "chlo."
"""The prefix of operations that are taken apart before Shardy sees them."""


def applies(sample: Sample) -> bool:
    spec = sample.spec
    if (
        spec.spmd
        or spec.collective
        or sample.blocks
        or spec.name in OWN
        or not is_expressible(sample)
    ):
        return False
    # Shardy treats top_k of all elements as a copy; it is a sort, for which shards do not suffice.
    return spec.name != "top_k" or sample.result != (
        sample.operands[0],
        sample.operands[0].with_dtype("i32"),
    )


@some_of_each
@pytest.mark.parametrize("sample", [s for s in SAMPLES if applies(s)], ids=lambda sample: sample.id)
def test_the_factors_agree_with_shardy(sample: Sample) -> None:
    module = number_ops(sample.module())
    ours, theirs = module.main.body.ops[0].factors(), rule_of(module)
    if theirs is None:
        assert ours is None or ABOVE in show(module) or len(_operations(show(module))) > 1
    else:
        assert ours is not None
        assert loops(ours) == loops(theirs)


def _operations(text: str) -> list[str]:
    return [line for line in text.splitlines() if '= "' in line and "constant" not in line]
