"""Random pipelines give the loss and the gradients of their loss without a pipeline."""

import pytest

import shardir as sd
from tests.frontend.pipelines.random_pipelines import random_case
from tests.frontend.pipelines.test_pipeline import assert_near


@pytest.mark.sample(60)
@pytest.mark.parametrize("seed", range(60))
def test_random_pipelines(seed: int) -> None:
    with sd.cpu_devices(16):
        case = random_case(seed)
        made = case.step(case.pipelined())(*case.arguments)
        assert_near(made, case.step(case.loss)(*case.arguments))
