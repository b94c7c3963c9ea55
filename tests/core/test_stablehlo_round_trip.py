"""StableHLO text of a module reads back as the same program."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from shardir.frontend.random_programs.scope import runnable_operations
from shardir.interpret.interpreter import run
from shardir.ir.dtypes import KEYS
from shardir.ir.equality import find_difference
from shardir.ir.module import Module
from shardir.ir.operation import OPS
from shardir.stablehlo.printer import show
from shardir.stablehlo.reader import read
from shardir.stablehlo.writing.writer import WRITERS, ExportError
from shardir.verify.verifier import verify
from tests.op_sample import Sample
from tests.programs.bit_exact_programs import must_be_exact
from tests.programs.strategies import modules, sharded_modules
from tests.samples import LONG, SAMPLES, some_of_each
from tests.stablehlo_text import PARAPHRASED, round_trips, usual, values

pytestmark = some_of_each

SAID = [sample for sample in SAMPLES if not (sample.spec.spmd or sample.spec.collective)]
SAME = [sample for sample in SAID if all(map(round_trips, sample.module().main.body.walk()))]
COMPUTED = [
    sample
    for sample in SAID
    if sample not in SAME
    and all(value.type.dtype not in KEYS for value in values(sample.module().main.body))
    and sample.spec.name != "select_and_scatter"
]


@pytest.mark.parametrize("sample", SAME, ids=lambda sample: sample.id)
def test_an_operation_round_trips(sample: Sample) -> None:
    module = sample.module()
    again = read(show(module))

    verify(again)
    assert find_difference(usual(module), usual(again)) is None


@pytest.mark.parametrize("sample", COMPUTED, ids=lambda sample: sample.id)
def test_operations_without_counterpart_compute_the_same(sample: Sample) -> None:
    module = sample.module()
    again = read(show(module))

    verify(again)
    for got, want in zip(run(again, sample.arrays()), run(module, sample.arrays()), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-2 if want.dtype.itemsize < 4 else 1e-5)


NAMES = [
    name
    for name in runnable_operations(spmd=False)
    if OPS[name] in WRITERS and name not in PARAPHRASED
]


@settings(max_examples=200 if LONG else 60, suppress_health_check=[HealthCheck.filter_too_much])
@given(sharded_modules())
def test_random_modules_round_trip(module: Module) -> None:
    """The second round trip reproduces the text exactly, for any module."""
    try:
        text = show(module)
    except ExportError:
        return
    again = read(text)
    verify(again)
    assert find_difference(again, read(show(again))) is None
    exact = all(map(round_trips, module.main.body.walk()))
    if exact and not _keys(module) and not _on_one_device(module):
        assert find_difference(usual(module), usual(again)) is None


@settings(max_examples=60)
@given(modules(ops=NAMES))
def test_random_programs_compute_the_same(module: Module) -> None:
    if _keys(module):
        return
    try:
        again = read(show(module))
    except ExportError:
        return
    must_be_exact(module, again)


def _on_one_device(module: Module) -> bool:
    """Return whether a sharding is on one device, which closes all of its dimensions."""
    said = [value.sharding for value in values(module.main.body)]
    return any(
        sharding is not None and module.mesh(sharding.mesh).is_maximal
        for sharding in (*said, *module.main.result_shardings)
    )


def _keys(module: Module) -> bool:
    return any(value.type.dtype in KEYS for value in values(module.main.body))
