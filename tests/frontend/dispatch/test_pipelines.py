"""`passes=` of `jit`, `pmap`, `compile` and the setting: another pipeline, the same numbers."""

from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir.errors import PipelineError
from shardir.frontend.errors import SettingError
from shardir.passes.pipeline import DEFAULT_PIPELINE, PASSES, Pipeline
from shardir.sharding import NamedSharding, PartitionSpec as P

PIPELINES = [
    "default,overlap",
    "default,combine-collectives,overlap",
    "default,rematerialize-gathers{minimum=0,idle=2}",
    "default,after:partition,collective-matmul{minimum=0}",
    "default,before:cse,collective-matmul{minimum=0},overlap",
    "default,hierarchical-collectives{across=data:2}",
    "propagate,reshard,partition",
]


def loss(weights: Any, x: Any) -> Any:
    return snp.mean((snp.tanh(x @ weights[0]) @ weights[1]) ** 2)


step = sd.grad(loss)


@pytest.fixture(scope="module")
def arguments() -> Any:
    mesh = sd.make_mesh((4, 2), ("data", "model"))
    random = np.random.default_rng(0)

    def place(shape: tuple[int, int], *spec: str | None) -> Any:
        values = random.standard_normal(shape).astype(np.float32)
        return sd.device_put(values, NamedSharding(mesh, P(*spec)))

    return (place((64, 32), "data", "model"), place((32, 16), "model")), place((16, 64), "data")


@pytest.mark.parametrize("isolated", [False, True], ids=["compiled", "isolated"])
@pytest.mark.parametrize("passes", PIPELINES)
def test_every_pipeline_computes_the_same(arguments: Any, passes: str, isolated: bool) -> None:
    expected = sd.jit(step)(*arguments)
    with sd.config(isolated=isolated):
        found = sd.jit(step, passes=passes)(*arguments)
    for a, b in zip(expected, found, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-6)


def has_overlap(lowered: Any) -> bool:
    return "all-reduce-start" in lowered.as_text("overlap")


def test_jit_pmap_compile_and_the_setting_accept_a_pipeline(arguments: Any) -> None:
    assert has_overlap(sd.jit(step, passes="default,overlap").lower(*arguments))
    with sd.config(passes="default,overlap"):
        assert has_overlap(sd.jit(step).lower(*arguments))
        # A keyword has priority over the setting.
        with pytest.raises(PipelineError, match="has no pass called 'overlap'"):
            sd.jit(step, passes="default").lower(*arguments).as_text("overlap")
    compiled = sd.jit(step).lower(*arguments).compile(passes="default,overlap")
    assert "all-reduce-start" in compiled.as_text()
    mean = sd.pmap(lambda x: sd.lax.pmean(x, "i"), "i", passes="default,overlap")
    assert mean(np.arange(4.0, dtype=np.float32)).tolist() == [1.5] * 4


def test_programs_of_different_pipelines_are_cached_separately(arguments: Any) -> None:
    function = sd.jit(step)
    plain = function.lower(*arguments).compile().as_text()
    with sd.config(passes="default,overlap"):
        assert function.lower(*arguments).compile().as_text() != plain
    assert function.lower(*arguments).compile().as_text() == plain


def test_the_default_step_stands_for_the_default_pipeline() -> None:
    assert str(Pipeline.parse("default,overlap")) == f"{DEFAULT_PIPELINE},overlap"
    assert str(Pipeline.parse("inline,default", Pipeline(()))) == "inline"


def test_positions_extend_the_default_pipeline() -> None:
    default = Pipeline.parse("propagate,partition,cse,dce")

    def extend(text: str) -> str:
        return str(Pipeline.parse(text, default))

    assert extend("default") == "propagate,partition,cse,dce"
    assert extend("inline,default,overlap") == "inline,propagate,partition,cse,dce,overlap"
    assert (
        extend("default,after:partition,simplify,cse,before:propagate,inline")
        == "inline,propagate,partition,simplify,cse,cse,dce"
    )
    assert extend("default,after:partition,combine-collectives{limit=8},overlap{latency=0.1}") == (
        "propagate,partition,combine-collectives{limit=8},overlap{latency=0.1},cse,dce"
    )
    assert extend("cse,dce") == "cse,dce"


@pytest.mark.parametrize(
    ("passes", "reason"),
    [
        ("default,overlapp", "no pass is called 'overlapp'; did you mean 'overlap'?"),
        ("default{x=1}", "the default pipeline has no options, got 'x=1'; write the pass with its "
         "options before or after the step default"),
        ("none{x=1}", "the step none stands for no pass and has no options, got 'x=1'"),
        ("double-negation", "no pass is called 'double-negation'; --load mypass.py or "
         "shardir.extend.load_plugin loads the passes of a file; the passes are "
         + ", ".join(PASSES.names())),
        (
            "default,after:nope,cse",
            "after:nope is not a position: no earlier step is called 'nope'; the earlier steps are "
            + ", ".join(step.name for step in Pipeline.parse(DEFAULT_PIPELINE).passes),
        ),
        ("before:cse,dce", "before:cse is not a position: no earlier step is called 'cse'; "
         "write the step default before it: default,before:cse"),
        (3, "a pipeline is a string, got 3"),
    ],
)  # fmt: skip
def test_wrong_pipelines_are_refused_before_tracing(passes: Any, reason: str) -> None:
    with pytest.raises(SettingError) as caught:
        sd.jit(step, passes=passes)
    text, _, location = str(caught.value).partition("\n   --> ")
    assert text == (
        f"passes of jit is {passes!r}; it must be a pipeline such as 'default,overlap', or None: "
        f"{reason}"
    )
    assert location.startswith("tests/frontend/dispatch/test_pipelines.py:")


@pytest.mark.parametrize("method", ["compile", "with_passes"])
def test_the_method_with_a_wrong_pipeline_is_named(method: str) -> None:
    lowered = sd.jit(snp.sin).lower(1.0)
    with pytest.raises(SettingError) as caught:
        getattr(lowered, method)(passes="default,nope{")
    text, _, location = str(caught.value).partition("\n   --> ")
    assert location.startswith("tests/frontend/dispatch/test_pipelines.py:")
    assert text == (
        f"passes of {method} is 'default,nope{{'; it must be a pipeline such as 'default,overlap', "
        "or None: cannot read the pipeline at 'nope{'; write it as "
        "pass,pass{option=value,option=value}"
    )


def test_a_pipeline_must_partition_the_program(arguments: Any) -> None:
    with pytest.raises(PipelineError) as caught:
        sd.jit(step, passes="propagate")(*arguments)
    assert str(caught.value) == (
        "the pipeline 'propagate' leaves loss unpartitioned; extend the default pipeline "
        "(default,PASS), or add the pass partition"
    )


def test_a_pipeline_must_remove_the_axes_that_it_adds() -> None:
    def loss(w: Any, x: Any) -> Any:
        return snp.mean((x @ w) ** 2)

    gradient = sd.jit(sd.grad(loss), passes="split-batch,default")
    with pytest.raises(PipelineError) as caught:
        gradient(np.ones((4, 4), "float32"), np.ones((8, 4), "float32"))
    assert str(caught.value) == (
        "the pipeline 'split-batch,default' leaves loss with the axis 'microbatch', along which "
        "there are no devices; append the pass that removes it, such as accumulate-microbatches "
        "after split-batch"
    )


def test_a_program_of_one_device_runs_the_pipeline_too() -> None:
    twice = sd.jit(lambda x: (snp.exp(x), snp.exp(x)), passes="cse,dce").lower(np.ones(3))
    assert twice.as_text("dce").count("exp(") == 1
    first, second = twice.compile()(np.ones(3))
    np.testing.assert_array_equal(first, second)
