"""The runner of Shardy's tests, on small files of our own."""

from pathlib import Path

import pytest

from shardir.passes import Propagate
from tests.shardy.suite import runner
from tests.shardy.suite.cases import SUITES, Suite
from tests.shardy.suite.check_files import cases_of
from tests.shardy.suite.check_matching import ComparisonMode
from tests.shardy.suite.not_applicable import NOT_APPLICABLE, NOT_SUPPORTED
from tests.shardy.suite.refusals import (
    compare_printed,
    compare_refusal,
    functions_of,
    parts_of,
)
from tests.shardy.suite.runner import run_file

FILE = """\
// RUN: sdy_opt %s -split-input-file -sdy-basic-propagate | FileCheck %s
sdy.mesh @m = <["x"=2, "y"=2]>

// CHECK-LABEL: func @right(
// CHECK-SAME:      %arg0: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@m, [{"x"}, {"y", ?}]>})
// CHECK-SAME:  -> (tensor<4x8xf32> {sdy.sharding = #sdy.sharding<@m, [{"y"}, {"x", ?}]>}) {
func.func @right(%x: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@m, [{"x"}, {?}]>})
    -> (tensor<4x8xf32> {sdy.sharding = #sdy.sharding<@m, [{"y"}, {?}]>}) {
  // CHECK-NEXT: %[[T:.*]] = stablehlo.transpose %arg0, dims = [1, 0]
  // CHECK-SAME:   {sdy.sharding = #sdy.sharding_per_value<[<@m, [{"y", ?}, {"x", ?}]>]>}
  // CHECK-NEXT: %[[U:.*]] = stablehlo.add %[[T]], %[[T]]
  // CHECK-NEXT: return %[[U]]
  %t = stablehlo.transpose %x, dims = [1, 0] : (tensor<8x4xf32>) -> tensor<4x8xf32>
  %u = stablehlo.add %t, %t : tensor<4x8xf32>
  return %u : tensor<4x8xf32>
}

// -----
sdy.mesh @m = <["x"=2, "y"=2]>

// CHECK-LABEL: func @wrong(
// CHECK-SAME:      %arg0: tensor<8xf32> {sdy.sharding = #sdy.sharding<@m, [{"y"}]>})
func.func @wrong(%x: tensor<8xf32> {sdy.sharding = #sdy.sharding<@m, [{"x"}]>}) -> tensor<8xf32> {
  // CHECK-NEXT: %[[N:.*]] = stablehlo.negate %arg0 : tensor<8xf32>
  // CHECK-NOT:  stablehlo.sine
  // CHECK:      stablehlo.cosine
  %n = stablehlo.negate %x : tensor<8xf32>
  %s = stablehlo.sine %n : tensor<8xf32>
  return %s : tensor<8xf32>
}

// -----

// CHECK-LABEL: func @rules
func.func @rules(%x: tensor<8x4xf32>, %y: tensor<4x2xf32>) -> tensor<8x2xf32> {
  // CHECK: sdy.sharding_rule = #sdy.op_sharding_rule<([i, k], [k, j])->([i, j])
  // CHECK-SAME: {i=8, j=2, k=4} reduction={k}>
  %d = stablehlo.dot %x, %y : (tensor<8x4xf32>, tensor<4x2xf32>) -> tensor<8x2xf32>
  return %d : tensor<8x2xf32>
}
"""
BASIC = Propagate(level="basic", keep_open=True, prepare=False)
SUITE = Suite("ours", ("little.mlir",), BASIC, ComparisonMode())


def test_cases_have_the_check_lines_of_their_function() -> None:
    right, wrong, rules = cases_of(FILE, "little.mlir")

    assert [case.name for case in (right, wrong, rules)] == ["right", "wrong", "rules"]
    assert [check.word for check in right.checks] == ["LABEL", "NEXT", "NEXT", "NEXT"]
    assert right.checks[1].text.endswith('[<@m, [{"y", ?}, {"x", ?}]>]>}')
    assert [check.line for check in wrong.checks] == [21, 24, 25, 26]


def test_differences_are_reported_per_value() -> None:
    right, wrong, rules = run_file(FILE, "little.mlir", SUITE)

    assert right.differences == rules.differences == ()
    assert wrong.differences == (
        "argument 0: @m[{x:(1)2}], wanted @m[{y:(1)2}]",
        "line 24: %n 0: @m[{x:(1)2,?}], wanted nothing",
        "line 26: no stablehlo.cosine()",
        "line 25: there is stablehlo.sine",
    )


def test_agreement_is_printed_by_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "little.mlir").write_text(FILE, "utf-8")
    line = FILE.splitlines().index("// CHECK-LABEL: func @wrong(") + 1
    known = {f"wrong:{line}": "it is wrong"}
    left_out = Suite("again", ("little.mlir",), BASIC, ComparisonMode(), left_out=known)
    monkeypatch.setattr(runner, "SUITES", (SUITE, left_out))

    assert runner.main([str(tmp_path)]) == 0
    assert capsys.readouterr().out == (
        "ours: little.mlir: 2/3\n"
        "  @wrong\n"
        "again: little.mlir: 2/2, 1 left out\n"
        "  left out @wrong: it is wrong\n"
        "propagation, rules, origins and edges: agreed 4 of 5, 80.0%\n"
    )


DIAGNOSTICS = """\
// RUN: sdy_opt %s -split-input-file -verify-diagnostics
sdy.mesh @m = <["x"=2]>

func.func @refused(%x: tensor<8xf32>) -> tensor<8xf32> {
  // expected-error @+1 {{unknown axis}}
  %s = sdy.reshard %x <@m, [{"y"}]> : tensor<8xf32>
  return %s : tensor<8xf32>
}

// -----

func.func @accepted(%x: tensor<8xf32>) -> tensor<8xf32> {
  // expected-error @+1 {{something else}}
  return %x : tensor<8xf32>
}

// -----

func.func @valid(%x: tensor<8xf32>) -> tensor<8xf32> {
  return %x : tensor<8xf32>
}

// -----

func.func @unknown(%x: tensor<8xf32>) -> tensor<8xf32> {
  return %y : tensor<8xf32>
}
"""


def test_refusals_are_compared_per_part() -> None:
    suite = Suite(
        "ours", (), lambda module: module, ComparisonMode(),
        execute=compare_refusal, divide=parts_of,
    )  # fmt: skip
    outcomes = {o.case.name: o.differences for o in run_file(DIAGNOSTICS, "little.mlir", suite)}
    assert outcomes == {
        "refused#0": (),
        "accepted#1": ("accepted, but Shardy says: something else",),
        "valid#2": (),
        "unknown#3": ("refused, but Shardy accepts it: %y is not defined here",),
    }


def test_printed_programs_are_compared_per_function() -> None:
    suite = Suite(
        "ours", (), lambda module: module, ComparisonMode(),
        execute=compare_printed, divide=functions_of,
    )  # fmt: skip
    outcomes = list(run_file(DIAGNOSTICS.replace('{"y"}', '{"x"}'), "little.mlir", suite))
    assert [(o.case.name, bool(o.differences)) for o in outcomes] == [
        ("refused", False), ("accepted", False), ("valid", False), ("unknown", True)
    ]  # fmt: skip


def test_files_in_no_suite_are_listed_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = "shardy/dialect/sdy/ir/test"
    (tmp_path / folder / "more").mkdir(parents=True)
    for name in ("compared", "form", "absent", "more/unknown"):
        (tmp_path / folder / f"{name}.mlir").write_text(FILE, "utf-8")
    suite = Suite("ours", (f"{folder}/compared.mlir",), BASIC, ComparisonMode())
    monkeypatch.setattr(runner, "SUITES", (suite,))
    monkeypatch.setattr(runner, "NOT_APPLICABLE", {f"{folder}/form.mlir": "only a form"})
    monkeypatch.setattr(runner, "NOT_SUPPORTED", {f"{folder}/absent.mlir": "we lack it"})

    runner.report_other_files(tmp_path)
    assert capsys.readouterr().out == (
        f"not supported: {folder}/absent.mlir: we lack it\n"
        f"not applicable: {folder}/form.mlir: only a form\n"
        f"in no suite: {folder}/more/unknown.mlir\n"
    )


def test_each_file_is_in_one_table() -> None:
    in_suites = {name for suite in SUITES for name in suite.files}
    assert not in_suites & (NOT_APPLICABLE.keys() | NOT_SUPPORTED.keys())
    assert not NOT_APPLICABLE.keys() & NOT_SUPPORTED.keys()
