"""Every operation that IPUs support gives the reference results on the host model."""

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir.backends.ipu.host_model import build_and_run
from shardir.backends.ipu.lowering.lowering_table import LOWERING_RULES, REFUSED_OPERATIONS
from shardir.backends.ipu.target import program_text
from shardir.frontend.dispatch.stages.emission import make_emission
from shardir.ir.operation import OPS
from shardir.ops.elementwise.special import erf_inv, erf_inv_xla
from shardir.text.parser import parse
from tests.backends.ipu.host_model_execution import Case, check
from tests.backends.ipu.operation_cases import emittable_samples
from tests.samples import SAMPLES

pytestmark = pytest.mark.sample(4)

LIBRARY_COUNT = 4
"""The samples are compiled in this number of libraries."""


@pytest.mark.parametrize("part", range(LIBRARY_COUNT))
def test_samples_give_the_reference_results(part: int) -> None:
    check(
        {
            name: case
            for i, (name, case) in enumerate(emittable_samples())
            if i % LIBRARY_COUNT == part
        }
    )


def test_every_operation_is_lowered_or_rejected_with_a_reason() -> None:
    assert not set(LOWERING_RULES) & set(REFUSED_OPERATIONS)
    assert sorted({*LOWERING_RULES, *REFUSED_OPERATIONS}) == sorted(OPS)


def test_every_lowered_operation_has_a_sample_that_runs() -> None:
    ran = {case.module.main.body.ops[0].name for _, case in emittable_samples()}
    sampled = {sample.spec.name for sample in SAMPLES}
    assert sampled & set(LOWERING_RULES) - ran == set()


def test_erf_inv_is_less_accurate_near_1_only_with_as_xla() -> None:
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


def test_packbits_and_unpackbits_use_shifts() -> None:
    bits, packed_bytes = np.arange(48) % 5 < 2, np.arange(6, dtype=np.uint8) * 41
    packed = sd.jit(lambda x: snp.packbits(x)).lower(bits)
    unpacked = sd.jit(lambda x: snp.unpackbits(x, bitorder="little")).lower(packed_bytes)
    check({"packed": Case.of(packed, [bits]), "unpacked": Case.of(unpacked, [packed_bytes])})
