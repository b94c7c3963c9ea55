"""We decide as the real Shardy does, to the axis. Runs where the extra `jax` is installed."""

import pytest

pytest.importorskip("jaxlib")

from shardir.ir import Module
from shardir.passes import Propagate
from shardir.passes.propagation.priorities import ROUNDS
from tests.shardy.compare import closed_disagreements, disagreements
from tests.shardy.maker import KINDS, Options
from tests.shardy.oracle import LEVELS, numbered, ours, run, whole_is_nothing
from tests.shardy.programs import program

PROGRAMS = {
    "flat": Options(size=15, regions=False, constraints=False, constants=False),
    "constants": Options(size=15, regions=False, constraints=False),
    "constraints": Options(size=15, regions=False),
    "loops": Options(size=15),
    "meshes": Options(size=15, meshes=3),
    "large": Options(size=40),
}
COUNT = 50


def programs(kind: str) -> list[Module]:
    return [program(f"{kind} {seed}", PROGRAMS[kind]) for seed in range(COUNT)]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", PROGRAMS)
def test_open_shardings_agree(kind: str, level: str) -> None:
    for seed, module in enumerate(programs(kind)):
        assert not disagreements(module, level), f"{kind} {seed}\n{module}"


@pytest.mark.parametrize("kind", PROGRAMS)
def test_final_shardings_agree(kind: str) -> None:
    for seed, module in enumerate(programs(kind)):
        assert not closed_disagreements(module), f"{kind} {seed}\n{module}"


@pytest.mark.parametrize("kind", ["constraints", "loops"])
def test_the_border_agrees_with_the_whole_pipeline(kind: str) -> None:
    """Which cuts more operations than propagation itself, so operations are not compared."""
    for module in map(numbered, programs(kind)):
        want = whole_is_nothing(run(module, "sdy-propagation-pipeline"))
        got = whole_is_nothing(ours(Propagate()(module)))
        assert (got.params, got.results) == (want.params, want.results), str(module)


def test_programs_are_hard_enough() -> None:
    """Another order of the work list decides otherwise in some of them."""
    modules = programs("loops")
    different = sum(
        str(Propagate(level="basic")(m)) != str(Propagate(level="basic", order="fifo")(m))
        for m in modules
    )
    assert different > COUNT // 20
    assert len(KINDS) >= 25
    assert ROUNDS == 5
