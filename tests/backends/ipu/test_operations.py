"""Every operation that IPUs have computes on the host model what the reference computes."""

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir.backends.ipu.host_model import build_and_run
from shardir.backends.ipu.lowering.lowering_table import LOWERING_RULES, REFUSED_OPERATIONS
from shardir.backends.ipu.target import program_text
from shardir.frontend.dispatch.emission import make_emission
from shardir.ir.operation import OPS
from shardir.ops.elementwise.special import erf_inv, erf_inv_xla
from shardir.text.parser import parse
from tests.backends.ipu.host_model_execution import Case, check
from tests.backends.ipu.operation_cases import cases
from tests.samples import SAMPLES

PARTS = 4
"""Samples are compiled together, in so many libraries."""


@pytest.mark.parametrize("part", range(PARTS))
def test_samples_compute_what_the_reference_does(part: int) -> None:
    check({name: case for i, (name, case) in enumerate(cases()) if i % PARTS == part})


def test_every_operation_is_lowered_or_refused_with_a_reason() -> None:
    assert not set(LOWERING_RULES) & set(REFUSED_OPERATIONS)
    assert sorted({*LOWERING_RULES, *REFUSED_OPERATIONS}) == sorted(OPS)


def test_what_is_lowered_has_a_sample_that_runs() -> None:
    ran = {case.module.main.body.ops[0].name for _, case in cases()}
    sampled = {sample.spec.name for sample in SAMPLES}
    assert sampled & set(LOWERING_RULES) - ran == set()


def test_erf_inv_loses_digits_towards_1_only_where_that_is_asked_for() -> None:
    module = parse("""\
func @f(%x: f32[200]) -> (f32[200], f32[200]) {
  %y = erf_inv(%x) : f32[200]
  %z = erf_inv(%x, as_xla=true) : f32[200]
  return %y, %z
}
""")
    x = (1 - np.geomspace(1e-6, 1, 200, endpoint=False)).astype(np.float32)

    y, z = build_and_run(program_text(make_emission(module, "ipu"), {}), [x])

    np.testing.assert_allclose(y, erf_inv(x), rtol=5e-7)
    np.testing.assert_allclose(z, erf_inv_xla(x), rtol=5e-7)
    assert np.max(np.abs(z / erf_inv(x) - 1)) > 2e-6


def test_words_are_seen_as_bytes_by_shifts() -> None:
    bits, found = np.arange(48) % 5 < 2, np.arange(6, dtype=np.uint8) * 41
    packed = sd.jit(lambda x: snp.packbits(x)).lower(bits)
    unpacked = sd.jit(lambda x: snp.unpackbits(x, bitorder="little")).lower(found)
    check({"packed": Case.of(packed, [bits]), "unpacked": Case.of(unpacked, [found])})
