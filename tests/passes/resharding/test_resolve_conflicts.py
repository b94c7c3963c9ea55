"""`resolve-conflicts`: conflicting results take the sharding with the least communication."""

from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st

from shardir.ir.module import Function, Module
from shardir.passes import Pipeline, Propagate, ResolveConflicts
from shardir.passes.pipeline import DEFAULT_PIPELINE, SHARDY_PIPELINE
from shardir.passes.resharding.reshard import Reshard
from shardir.passes.resharding.resolve_conflicts import received_bytes
from shardir.text.parser import parse
from shardir.verify.verifier import verify
from tests.passes.sharded_evaluation import annotate_randomly, check_agreement
from tests.programs.strategies import modules

PROGRAM = """\
mesh @m = [x=4, y=2]

func @f(
  {operands},
) -> ({asked}) {{
  %c = {op} : {result}
  return %c
}}
"""
ADD = "add(%a, %b)", "f32[64, 128]"
RESOLVED = [
    # operands, operation, its type, sharding of the result, bytes before and after
    ("%a: f32[64@x, 128@-],\n  %b: f32[64@y, 128@-]", *ADD, "f32[64@(x, y), 128@-]", 32768, 4096),
    ("%a: f32[64@x, 128@y],\n  %b: f32[64@y, 128@x]", *ADD, "f32[64@x, 128@y]", 34816, 6144),
    (
        "%a: f32[64@(x, y), 128@-],\n  %b: f32[64@(y, x), 128@-]",
        *ADD,
        "f32[64@(x, y), 128@-]",
        32768,
        4096,
    ),
    ("%a: f32[64@-, 128@x]", "reshape(%a)", "f32[8192]", "f32[8192@x]", 24576, 6144),
    (
        "%a: f32[64@x, 128@-]",
        "reshape(%a)",
        "f32[2, 32, 128]",
        "f32[2@x:(1)2, 32@x:(2)2, 128@-]",
        24576,
        0,
    ),
    (
        "%a: f32[64@-, 128@x]",
        "reshape(%a)",
        "f32[64, 2, 64]",
        "f32[64@-, 2@x:(1)2, 64@x:(2)2]",
        24576,
        0,
    ),
]


def run_resolve_conflicts(text: str) -> Module:
    module = ResolveConflicts()(Propagate(leave_open=True)(parse(text)))
    verify(module)
    return module


@pytest.mark.parametrize(("operands", "op", "type", "asked", "before", "after"), RESOLVED)
def test_conflicts_are_resolved(
    operands: str, op: str, type: str, asked: str, before: int, after: int
) -> None:
    text = PROGRAM.format(operands=operands, op=op, result=type, asked=type)
    module = run_resolve_conflicts(text)
    assert f"-> ({asked})" in str(module)
    assert received_bytes(Propagate()(parse(text))) == before
    assert received_bytes(module) == after


def test_the_operation_states_its_reason() -> None:
    operands, op, type = "%a: f32[64@x, 128@-],\n  %b: f32[64@y, 128@-]", *ADD
    module = run_resolve_conflicts(
        PROGRAM.format(operands=operands, op=op, result=type, asked=type)
    )
    assert module.main.body.ops[0].why == (
        "propagation leaves %c [-, -]; made [(x, y), -] instead, its operands send less"
    )


def test_the_chosen_program_is_not_resharded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the passes after it, the pipeline uses the results that the pass compared."""
    resharded = []
    run = Reshard.__call__

    def record(self: Reshard, module: Module) -> Module:
        resharded.append(module)
        return run(self, module)

    monkeypatch.setattr(Reshard, "__call__", record)
    operands, op, type = "%a: f32[64@x, 128@-],\n  %b: f32[64@y, 128@-]", *ADD
    program = parse(PROGRAM.format(operands=operands, op=op, result=type, asked=type))
    seen: list[tuple[str, Module]] = []
    Pipeline.parse(DEFAULT_PIPELINE)(
        program, lambda step, before, after, seconds: seen.append((step.name, after))
    )
    assert len(resharded) == 2
    steps = ResolveConflicts()(Propagate(leave_open=True)(program))
    assert str(dict(seen)["reshard"]) == str(run(Reshard(), steps))


def test_later_values_are_sharded_too() -> None:
    module = run_resolve_conflicts("""\
mesh @m = [x=4, y=2]

func @f(
  %a: f32[64@x],
  %b: f32[64@y],
) -> (f32[64]) {
  %c = add(%a, %b) : f32[64]
  %d = exp(%c) : f32[64]
  return %d
}
""")
    assert "%d = exp(%c) : f32[64@(x, y)]" in str(module)


def test_closed_results_are_not_changed() -> None:
    operands, (op, _) = "%a: f32[64@x, 128@-],\n  %b: f32[64@y, 128@-]", ADD
    closed = "f32[64@-, 128@-]"
    text = PROGRAM.format(operands=operands, op=op, result=closed, asked=closed)
    assert str(run_resolve_conflicts(text)) == str(Propagate()(parse(text)))


def test_no_change_without_savings() -> None:
    """Each device needs the full result anyway; with a sharded result, a larger array would be
    gathered.
    """
    text = """\
mesh @m = [x=4, y=2]

func @f(
  %a: f32[8@x],
  %b: f32[8@y],
) -> (f32[64@-, 8@-]) {
  %c = add(%a, %b) : f32[8]
  %d = broadcast(%c, dims=[1]) : f32[64, 8]
  return %d
}
"""
    plain = Propagate()(parse(text))
    assert received_bytes(run_resolve_conflicts(text)) <= received_bytes(plain)


def test_sums_are_reduced_to_their_original_shardings() -> None:
    """Sharded gradients without a requested sharding would have to be gathered in the next step."""
    text = """\
mesh @m = [x=4, y=2]

func @f(
  %a: f32[64@x, 128@y],
  %b: f32[128@y, 64@x],
) -> (f32[64, 64]) {
  %c = dot(%a, %b, dims="ik,kj->ij") : f32[64, 64]
  return %c
}
"""
    assert str(run_resolve_conflicts(text)) == str(Propagate()(parse(text)))


@pytest.mark.parametrize(
    ("left", "right", "nbytes", "former"),
    [
        ("64@-, 32@x", "48@-, 32@y", 4480, 19968),
        ("64@x, 32@y", "48@-, 32@x", 3328, 6144),
        ("64@-, 32@x", "48@-, 32@(x, y)", 10752, 21504),
    ],
)
def test_a_contracted_dimension_with_two_shardings_is_resharded_where_that_sends_less(
    left: str, right: str, nbytes: int, former: int
) -> None:
    text = f"""\
mesh @m = [x=4, y=2]

func @f(
  %a: f32[{left}],
  %b: f32[{right}],
) -> (f32[64, 48]) {{
  %c = dot(%a, %b, dims="ik,jk->ij") : f32[64, 48]
  return %c
}}
"""
    chosen = run_resolve_conflicts(text)
    assert received_bytes(chosen) == nbytes
    assert received_bytes(Propagate()(parse(text))) == former


def test_the_exact_pipeline_does_not_resolve_conflicts() -> None:
    assert "resolve-conflicts" in DEFAULT_PIPELINE
    assert "resolve-conflicts" not in SHARDY_PIPELINE


@settings(max_examples=20)
@given(st.data())
def test_programs_send_no_more_with_equal_results(data: st.DataObject) -> None:
    module = open_results(
        annotate_randomly(data, data.draw(modules()), lambda _: data.draw(st.booleans()))
    )
    plain = Propagate()(module)
    chosen = ResolveConflicts()(Propagate(leave_open=True)(module))
    assert received_bytes(chosen) <= received_bytes(plain)
    rest = Pipeline.parse(DEFAULT_PIPELINE).passes[2:]
    check_agreement(chosen, ",".join(map(str, rest)))


def open_results(module: Module) -> Module:
    """Return the module without the shardings of its results."""
    main = module.main
    free: Function = replace(main, result_shardings=(None,) * len(main.result_shardings))
    return replace(module, functions=(free,))
