"""Shardings, rules and manual computations that Shardy's verifiers refuse."""

import pytest

from shardir.errors import ParseError, VerifyError
from shardir.stablehlo.reader import read
from shardir.verify.verifier import verify

MESHES = """\
sdy.mesh @m = <["x"=4, "y"=2]>
sdy.mesh @n = <["x"=4]>
sdy.mesh @one = <[], device_ids=[0]>
"""


def refuse(text: str) -> str:
    with pytest.raises(ParseError) as error:
        read(MESHES + text)
    return str(error.value).splitlines()[0]


def parameter(sharding: str, type: str = "tensor<8xf32>") -> str:
    return (
        f"func.func @f(%x: {type} {{sdy.sharding = #sdy.sharding<{sharding}>}}) -> {type} {{\n"
        f"  return %x : {type}\n}}\n"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            parameter('@m, [{"x":(1)4}]'),
            'this is the complete axis of size 4, not a part of it; write "x"',
        ),
        (parameter('@m, [{"x"}p01]'), "a priority has no leading zeros; write p1"),
        (
            parameter('@m, [], replicated={"x"}', "!stablehlo.token"),
            "a token is not replicated or unreduced",
        ),
        (
            parameter("@one, [{}]"),
            "a sharding on the single device of @one has no dimensions and no axes; "
            "write <@one, []>",
        ),
    ],
)
def test_shardings(text: str, message: str) -> None:
    assert refuse(text) == message


def operation(text: str, results: str = "%r = ", attributes: str = "") -> str:
    return (
        "func.func @f(%x: tensor<8xf32>) -> tensor<8xf32> {\n"
        f"  {results}{text}\n  return %x : tensor<8xf32>\n}}\n"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            operation(
                'stablehlo.negate %x {sdy.sharding = #sdy.sharding<@m, [{"x"}]>} : tensor<8xf32>'
            ),
            "an operation states the shardings of all its results; write "
            '#sdy.sharding_per_value<[<@m, [{"x"}]>]>',
        ),
        (
            operation(
                "stablehlo.custom_call @foo(%x) {has_side_effect = true, sdy.sharding = "
                '#sdy.sharding_per_value<[<@m, [{"x"}]>]>} : (tensor<8xf32>) -> ()',
                results="",
            ),
            "an operation without results can only state one sharding, without axes",
        ),
    ],
)
def test_shardings_of_operations(text: str, message: str) -> None:
    assert refuse(text) == message


@pytest.mark.parametrize("mesh", ["one", "m"])
def test_an_operation_without_results_states_where_it_runs(mesh: str) -> None:
    assert read(MESHES + operation(
        "stablehlo.custom_call @foo(%x) {has_side_effect = true, sdy.sharding = "
        f"#sdy.sharding_per_value<[<@{mesh}, []>]>}} : (tensor<8xf32>) -> ()",
        results="",
    ))  # fmt: skip


def stated_rule(rule: str) -> str:
    return (
        "func.func @f(%x: tensor<2x4xf32>) -> tensor<2x4xf32> {\n"
        f"  %r = stablehlo.custom_call @foo(%x) {{sdy.sharding_rule = {rule}}} : "
        "(tensor<2x4xf32>) -> tensor<2x4xf32>\n  return %r : tensor<2x4xf32>\n}\n"
    )


FORM = (
    "is not a factor rule of Shardy; write ([i, k])->([i]) {i=8, k=4} reduction={k} "
    "need_replication={} permutation={}"
)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("1 : i64", "sdy.sharding_rule is not a factor rule, #sdy.op_sharding_rule<>"),
        (
            "#sdy.op_sharding_rule<([i, j])->([i, j]) {i=2, j=4}, customized>",
            f"'#sdy.op_sharding_rule<([i, j])->([i, j]) {{i=2, j=4}}, customized>' {FORM}",
        ),
        (
            "#sdy.op_sharding_rule<([i, j])->([i, j]) {j=4, i=2}>",
            "the factors of a rule are called i, j, not j, i",
        ),
        (
            "#sdy.op_sharding_rule<([i, j])->([i, j]) {i=2, j=4} need_replication={k}>",
            "need_replication states k, which is no factor of the rule",
        ),
        (
            "#sdy.op_sharding_rule<([i, j])->([i, j]) {i=2, j=4} need_replication={j, i}>",
            "need_replication states its factors in their order, each once, not j, i",
        ),
        (
            "#sdy.op_sharding_rule<([i, j])->([i, j]) {i=2, j=4} need_replication={j} "
            "permutation={j}>",
            "the factor j is in need_replication and in permutation; it can be in one",
        ),
        (
            "#sdy.op_sharding_rule<([i, j], [i, j])->([i, j]) {i=2, j=4}>",
            "the rule is for 2 operands, the operation has 1 operand",
        ),
        (
            "#sdy.op_sharding_rule<([i, j])->([i]) {i=2, j=4}>",
            "the rule states rank 1 for result 0 of rank 2",
        ),
        (
            "#sdy.op_sharding_rule<([i, i])->([i, j]) {i=2, j=4}>",
            "a factor is twice in operand 0 of the rule",
        ),
        (
            "#sdy.op_sharding_rule<([i, jk])->([i, j]) {i=2, j=4, k=1}>",
            "operand 0 of the rule has a factor of size 1 beside others of one dimension",
        ),
        (
            "#sdy.op_sharding_rule<([i, j])->([i, j]) {i=2, j=4, k=2}>",
            "the factor k of the rule is in no operand and in no result",
        ),
        (
            "#sdy.op_sharding_rule<([i, j])->([i, j]) {i=2, j=4} reduction={j}>",
            "the reduction factor j is in a result of the rule",
        ),
    ],
)
def test_rules(rule: str, message: str) -> None:
    assert refuse(stated_rule(rule)) == message


def test_complete_rules_are_read() -> None:
    assert read(MESHES + stated_rule(
        "#sdy.op_sharding_rule<([i, jk])->([i, l]) {i=2, j=2, k=2, l=4} reduction={j} "
        "need_replication={k} permutation={l} blocked_propagation={k}, custom>"
    ))  # fmt: skip


def manual(ins: str, outs: str, axes: str, local: str, inner: str = "tensor<8xf32>") -> str:
    return (
        "func.func @f(%x: tensor<8xf32>) -> tensor<8xf32> {\n"
        f"  %r = sdy.manual_computation(%x) in_shardings=[{ins}] out_shardings=[{outs}] "
        f"manual_axes={{{axes}}} (%a: {local}) {{\n    sdy.return %a : {local}\n"
        f"  }} : (tensor<8xf32>) -> {inner}\n  return %r : {inner}\n}}\n"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            manual('<@m, [{"x"}]>', '<@n, [{"x"}]>', '"x"', "tensor<2xf32>"),
            "the shardings of a manual computation are on the meshes @m and @n; they must be on "
            "one",
        ),
        (
            manual('<@m, [{"x"}]>', '<@m, [{"x"}]>', '"x"', "tensor<8xf32>"),
            "manual_computation: its body takes (f32[8]), expected (f32[2])",
        ),
        (
            manual('<@m, [{"y", "x"}]>', '<@m, [{"x"}]>', '"x"', "tensor<2xf32>"),
            "the free axis y of dimension 0 is before a manual axis; manual axes are the first "
            "axes of a dimension",
        ),
    ],
)
def test_manual_computations(text: str, message: str) -> None:
    assert refuse(text) == message


def test_manual_axes_of_size_1_may_follow_free_axes() -> None:
    mesh = 'sdy.mesh @m = <["x"=4, "one"=1]>\n'
    text = manual('<@m, [{"x", "one"}]>', '<@m, [{"x"}]>', '"x", "one"', "tensor<2xf32>")
    assert read(mesh + text)


def test_values_in_a_manual_computation_are_not_replicated_along_its_axes() -> None:
    text = manual('<@m, [{"x"}]>', '<@m, [{"x"}]>', '"x"', "tensor<2xf32>").replace(
        "    sdy.return %a",
        '    %c = sdy.sharding_constraint %a <@m, [{}], replicated={"x"}> : tensor<2xf32>\n'
        "    sdy.return %c",
    )
    with pytest.raises(VerifyError, match="values are local along 'x', which is manual here"):
        verify(read(MESHES + text))


@pytest.mark.parametrize(
    ("ins", "outs", "name"),
    [
        ('<@m, [{"x"}], unreduced={"y"}>', '<@m, [{"x"}]>', "%a"),
        ('<@m, [{"x"}]>', '<@m, [{"x"}], unreduced={"y"}>', "%r"),
    ],
)
def test_manual_computations_have_no_partial_values(ins: str, outs: str, name: str) -> None:
    with pytest.raises(VerifyError) as error:
        verify(read(MESHES + manual(ins, outs, '"x", "y"', "tensor<2xf32>")))
    assert str(error.value).splitlines()[0] == (
        f"{name} is unreduced along the manual axis 'y'; reshard an operand before the "
        "manual_computation, and reduce a result in its body"
    )
