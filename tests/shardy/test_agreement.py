"""Our propagation agrees with the real Shardy on every axis. Requires the extra `jax`."""

import pytest

pytest.importorskip("jaxlib")

from shardir.ir.module import Module
from shardir.passes import Propagate
from shardir.passes.propagation.priorities import ROUND_COUNT
from tests.shardy.compare import agrees
from tests.shardy.fuzz import drawn
from tests.shardy.oracle import NoAnswer, numbered, ours, run, whole_is_nothing
from tests.shardy.random_programs.program_builder import KINDS, Options
from tests.shardy.random_programs.programs import program

PROGRAMS = {
    "flat": Options(size=15, regions=False, constraints=False, constants=False),
    "constants": Options(size=15, regions=False, constraints=False),
    "constraints": Options(size=15, regions=False),
    "loops": Options(size=15),
    "meshes": Options(size=15, meshes=3),
    "single devices": Options(size=15, meshes=2, maximal=True),
    "calls": Options(size=10, calls=True),
    "large": Options(size=40),
}
COUNT = 25
MANY = 5_000
"""Programs that are compared with `--long`; their options are drawn too."""


def programs(kind: str) -> list[Module]:
    return [program(f"{kind} {seed}", PROGRAMS[kind]) for seed in range(COUNT)]


@pytest.mark.parametrize("kind", PROGRAMS)
def test_shardings_agree(kind: str) -> None:
    """At each level and in the end, but where Shardy makes what its own verification refuses."""
    answered = 0
    for seed, module in enumerate(programs(kind)):
        found = agrees(module)
        assert not found, f"{kind} {seed}\n{module}\n{found}"
        answered += found is not None
    assert answered >= COUNT - 3


def test_many_programs_agree(request: pytest.FixtureRequest) -> None:
    """At each level and in the end, but where Shardy makes what its own verification refuses."""
    if not request.config.getoption("--long"):
        pytest.skip("5,000 programs take an hour; --long asks for them")
    assert [seed for seed in range(MANY) if agrees(drawn(seed))] == []


@pytest.mark.parametrize("kind", ["constraints", "loops"])
def test_the_border_agrees_with_the_whole_pipeline(kind: str) -> None:
    """Which cuts more operations than propagation itself, so operations are not compared."""
    for module in map(numbered, programs(kind)):
        try:
            want = whole_is_nothing(run(module, "sdy-propagation-pipeline"))
        except NoAnswer:
            continue
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
    assert ROUND_COUNT == 5
