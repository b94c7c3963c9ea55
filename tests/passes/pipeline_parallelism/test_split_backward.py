"""The backward fragments of stages: which values they take, give and keep."""

from shardir.interpret.interpreter import run
from shardir.interpret.numeric_comparison import are_close, tolerance_of
from shardir.interpret.random_arguments import random_arguments
from shardir.ir.module import Module
from shardir.passes.pipeline import Pipeline
from tests.passes.pipeline_parallelism.staged_programs import (
    END,
    MARKED,
    START,
    B,
    F,
    I,
    W,
    names,
    program,
    staged,
)

SPLIT = "split-stages,split-backward"


def assert_same_results(module: Module, passes: str = SPLIT) -> None:
    """Assert that the passes do not change what a program computes."""
    arguments = random_arguments(module)
    made = run(Pipeline.parse(passes)(module), arguments)
    assert are_close(run(module, arguments), made, tolerance_of(module))


def test_a_pipeline_without_gradients_has_forward_passes_only() -> None:
    pipeline = staged(program(MARKED, wrt=()), SPLIT)
    assert set(pipeline.fragments) == {(0, F), (1, F)}
    assert pipeline.backward == ()


def test_a_pipeline_with_backward_passes_remains_the_same() -> None:
    once, twice = (staged(program(MARKED), passes) for passes in (SPLIT, f"{SPLIT},split-backward"))
    assert twice.op.attrs == once.op.attrs


def test_a_value_that_depends_on_no_weight_has_no_cotangent() -> None:
    body = f"""
    %x.1 = pipeline-stage(%x, stage=0) : f32[4, 8]
    %a = tanh(%x.1) : f32[4, 8]
    %k = pipeline-stage(%a, stage=1) : f32[4, 8]{END}"""
    pipeline = staged(program(body), SPLIT)
    assert pipeline.forward == (("a",),)
    assert pipeline.backward == ((),)
    assert pipeline.fragments[0, B].gives == ()
    assert pipeline.fragments[1, B].gives == ("gradient 0",)
    assert_same_results(program(body))


def test_an_auxiliary_result_that_depends_on_a_weight_has_no_cotangent() -> None:
    body = f"{MARKED}\n    %t = tanh(%h) : f32[4, 8]"
    module = program(body, auxiliary=["%t"])
    pipeline = staged(module, SPLIT)
    assert "auxiliary 0" in pipeline.fragments[0, F].gives
    assert pipeline.fragments[0, B].takes == ("argument 1", "cotangent a")
    assert_same_results(module)


def test_a_residual_that_is_an_auxiliary_result_is_kept_under_its_own_name() -> None:
    """Auxiliary results are stacked, and not kept for the backward pass."""
    body = f"""{START}
    %t = tanh(%h) : f32[4, 8]
    %s = sin(%t) : f32[4, 8]
    %k = pipeline-stage(%s, stage=1) : f32[4, 8]{END}"""
    module = program(body, auxiliary=["%t"])
    pipeline = staged(module, SPLIT)
    assert pipeline.fragments[0, F].gives == ("s", "auxiliary 0", "saved t")
    assert_same_results(module)


def test_a_residual_that_is_sent_is_kept_once() -> None:
    body = f"""{START}
    %t = tanh(%h) : f32[4, 8]
    %k = pipeline-stage(%t, stage=1) : f32[4, 8]{END}"""
    pipeline = staged(program(body), SPLIT)
    assert pipeline.fragments[0, F].gives == ("t",)
    assert pipeline.fragments[0, B].takes == ("t", "argument 1", "cotangent t")
    assert_same_results(program(body))


def test_a_view_of_a_weight_is_computed_again() -> None:
    body = f"""
    %x.1 = pipeline-stage(%x, stage=0) : f32[4, 8]
    %v = transpose(%w, perm=[1, 0]) : f32[8, 8]
    %a = dot(%x.1, %v, dims="bi,ij->bj") : f32[4, 8]
    %t = tanh(%a) : f32[4, 8]
    %b = dot(%t, %v, dims="bi,ij->bj") : f32[4, 8]
    %k = pipeline-stage(%b, stage=1) : f32[4, 8]{END}"""
    pipeline = staged(program(body), SPLIT)
    assert pipeline.fragments[0, F].gives == ("b", "saved t")
    assert "argument 0" in pipeline.fragments[0, B].takes
    assert names(pipeline, 0, B).count("transpose") == 2  # Of the weight, and of its gradient.
    assert_same_results(program(body))


def test_the_form_selects_the_backward_fragments() -> None:
    kinds = {
        form: {
            kind
            for _, kind in staged(
                program(MARKED), f"split-stages,split-backward{{form={form}}}"
            ).fragments
        }
        for form in ("whole", "halves")
    }
    assert kinds == {"whole": {F, B}, "halves": {F, I, W}}
