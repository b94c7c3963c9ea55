"""Random programs of a seed, and the check of a pass on them."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from shardir.frontend.errors import ArgumentError
from shardir.ir.mesh import Mesh
from shardir.ir.module import Module
from shardir.ir.operation import OPS
from shardir.passes import PASSES, Pass
from shardir.testing import PassError, assert_pass_equivalent, random_program
from shardir.text.parser import parse
from shardir.verify.verifier import verify


@pytest.fixture(autouse=True)
def passes() -> Iterator[None]:
    before = dict(PASSES)
    yield
    PASSES.clear()
    PASSES.update(before)


def test_a_seed_determines_a_valid_program() -> None:
    for seed in range(50):
        module = random_program(seed)
        verify(module)
        assert module.main.body.ops
        assert str(parse(str(module))) == str(module) == str(random_program(seed))
    assert len({str(random_program(seed)) for seed in range(50)}) > 45


def test_operations_and_mesh_can_be_chosen() -> None:
    mesh = Mesh("grid", (("rows", 2),))
    names = {
        op.name
        for seed in range(20)
        for op in random_program(seed, operations=["add", "tanh"], mesh=mesh).main.body.ops
    }
    assert names == {"add", "tanh"}
    assert random_program(0, mesh=mesh).meshes == (mesh,)


@pytest.mark.parametrize("pipeline", ["cse,simplify,dce", "default", "default,overlap"])
def test_passes_keep_the_results(pipeline: str) -> None:
    assert_pass_equivalent(pipeline, seeds=range(25))


def test_a_pass_that_changes_results_is_found_and_its_program_reduced() -> None:
    class Exchange(Pass, name="exchange"):
        """Replace `sin` by `cos`."""

        def __call__(self, module: Module) -> Module:
            body = module.main.body
            cos = OPS["cos"]
            ops = tuple(replace(op, spec=cos) if op.name == "sin" else op for op in body.ops)
            body = replace(body, ops=ops)
            return replace(module, functions=(replace(module.main, body=body),))

    with pytest.raises(PassError) as caught:
        assert_pass_equivalent("exchange", operations=["sin", "add"], seeds=range(4, 9))
    lines = str(caught.value).splitlines()
    assert lines[0].startswith("'exchange' changes the results: result 0 differs (by ")
    assert lines[0].endswith(" (seed 4) on the program")
    assert [line.split(" = ")[1].partition("(")[0] for line in lines if " = " in line][1:] == [
        "sin"
    ]


def test_a_pass_that_raises_is_found() -> None:
    class Refuses(Pass, name="refuses"):
        def __call__(self, module: Module) -> Module:
            raise ZeroDivisionError("no reason")

    with pytest.raises(PassError) as caught:
        assert_pass_equivalent("refuses", seeds=[0])
    line = Refuses.__call__.__code__.co_firstlineno + 1
    assert str(caught.value).splitlines()[0] == (
        "'refuses' raises PipelineError: pass 'refuses' raised ZeroDivisionError at "
        f"{__file__}:{line}: no reason (seed 0) on the program"
    )


def message(**options: object) -> str:
    with pytest.raises(ArgumentError) as caught:
        random_program(**options)  # type: ignore[arg-type]
    return str(caught.value).splitlines()[0]


def test_wrong_arguments() -> None:
    assert message(seed="a") == "the seed of a program is an integer, got 'a'"
    assert message(seed=0, size=0) == "a program has at least 1 operation, got 0"
    assert message(seed=0, operations=["reshap"]) == (
        "random programs have no sampler of 'reshap'; did you mean 'reshape'?"
    )
    assert message(seed=0, operations=["frobnicate"]) == (
        "random programs have no sampler of 'frobnicate'; shardir.testing.sampler registers one"
    )
