"""Values on single devices of a program's mesh."""

import re
from typing import Any

import numpy as np
import pytest

from shardir.errors import PartitionError
from shardir.interpret.interpreter import run
from shardir.ir.dtypes import COMPLEX, DTYPE_INFO, FLOATS, KEYS
from shardir.passes.pipeline import DEFAULT_PIPELINE, SHARDY_PIPELINE, Pipeline
from shardir.stablehlo.printer import show
from shardir.stablehlo.reader import read
from shardir.text.parser import parse
from shardir.verify.verifier import verify

PROGRAM = """\
mesh @m = [x=2]
mesh @one = [] devices=[1]

func @main(%a: f32[4@x]) -> (f32[4@x], f32[4] on @one) {
  %0 = sin(%a) : f32[4@-] on @one
  %1 = add(%0, %a) : f32[4]
  %2 = neg(%0) : f32[4@-] on @one
  return %1, %2
}
"""


@pytest.mark.parametrize("pipeline", [DEFAULT_PIPELINE, SHARDY_PIPELINE])
def test_all_devices_compute_values_on_a_single_device(pipeline: str) -> None:
    a = np.arange(4, dtype=np.float32)
    both, negated = run(Pipeline.parse(pipeline)(parse(PROGRAM)), [a])
    np.testing.assert_allclose(both, np.sin(a) + a, rtol=1e-6)
    np.testing.assert_allclose(negated, -np.sin(a), rtol=1e-6)


OPAQUE = 'opaque(%a, operation="d.op", head="", attributes="", types="")'


@pytest.mark.parametrize(
    ("devices", "place"),
    [("devices=[1]", 1), ("devices=[0]", 0)],
)
@pytest.mark.parametrize("pipeline", [DEFAULT_PIPELINE, SHARDY_PIPELINE])
def test_one_device_runs_an_opaque_operation(pipeline: str, devices: str, place: int) -> None:
    text = PROGRAM.replace("devices=[1]", devices).replace("sin(%a)", OPAQUE)
    module = Pipeline.parse(pipeline)(parse(text))
    verify(module)
    assert str(module).count("opaque(") == 1
    (case,) = (op for op in module.main.body.walk() if op.name == "case")
    assert [op.name for op in case.blocks[1].ops] == ["opaque"]
    assert case.why.endswith(f" = opaque runs on device {place} alone")
    assert f"constant(value={place}) : i32[]" in str(module)
    # A known operation in its place shows what the devices compute.
    known = parse(re.sub(r"opaque\((%[\w.]+), [^)]*\)", r"sin(\1)", str(module)))
    a = np.array([-0.0, 1, 2, np.nan], np.float32)
    both, negated = run(known, [a])
    np.testing.assert_allclose(both, np.sin(a) + a, rtol=1e-6)
    np.testing.assert_allclose(negated, -np.sin(a), rtol=1e-6)
    np.testing.assert_array_equal(np.signbit(negated[:3]), ~np.signbit(np.sin(a[:3])))


@pytest.mark.parametrize("dtype", DTYPE_INFO)
def test_the_other_devices_receive_all_elements(dtype: str) -> None:
    text = f"""\
mesh @m = [x=2]
mesh @one = [] devices=[1]

func @main(%a: {dtype}[6@x]) -> ({dtype}[6@x]) {{
  %0 = {OPAQUE} : {dtype}[6@-] on @one
  return %0
}}
"""
    module = Pipeline.parse(DEFAULT_PIPELINE)(parse(text))
    assert str(module).count("opaque(") == 1
    (sent,) = (op for op in module.main.body.walk() if op.name == "all-reduce")
    assert str(sent.attrs["op"]) == {"bool": "or", "f8e8m0fnu": "max"}.get(dtype, "add")
    copied = parse(re.sub(r"opaque\((%[\w.]+), [^)]*\)", r"reshape(\1)", str(module)))
    if dtype in KEYS:
        assert str(module).count("bitcast(") == 2  # Collectives send the words of keys.
    if dtype in COMPLEX:
        values: Any = [0.0, -0.0, complex(-0.0, -0.0), complex(0.0, -0.0), np.inf, np.nan]
    elif dtype in FLOATS:
        values = [0.0, -0.0, 1.0, 2.0, np.inf, np.nan]
    else:
        values = [0, 1, 1, 0, 1, 0]
    a = np.array(values).astype(DTYPE_INFO[dtype].numpy)
    (found,) = run(copied, [a])
    np.testing.assert_array_equal(np.asarray(found).view(np.uint8), a.view(np.uint8))


def test_the_text_for_xla_runs_an_operation_on_the_device_with_this_number() -> None:
    """The number of the device is its id, and not its position in the mesh."""
    text = """\
sdy.mesh @m = <["x"=2, "y"=2], device_ids=[1, 0, 3, 2]>
sdy.mesh @one = <[], device_ids=[3]>
func.func @main(%a: tensor<4xf32> {sdy.sharding = #sdy.sharding<@m, [{"x"}]>})
    -> (tensor<4xi8>, tensor<i1>) {
  %0:2 = stablehlo.custom_call @f(%a) {sdy.sharding = #sdy.sharding_per_value<[
      <@one, []>, <@one, []>]>} : (tensor<4xf32>) -> (tensor<4xi8>, tensor<i1>)
  return %0#0, %0#1 : tensor<4xi8>, tensor<i1>
}
"""
    module = Pipeline.parse(DEFAULT_PIPELINE)(read(text))
    words = ("axis", "yield", "(value", "all-reduce")
    lines = [line.strip() for line in str(module).splitlines()]
    assert [line for line in lines if any(word in line for word in words)] == [
        "%2 = axis-index(axes=[x, y]) : i32[]",
        "%3 = constant(value=2) : i32[]",
        "%0 = constant(value=0) : i8[4]",
        "%1 = constant(value=false) : bool[]",
        "yield %0, %1",
        "yield %v0.0.1, %v0.1.1",
        "%v0.0 = all-reduce(%6, axes=[x, y], op=add) : i8[4]",
        "%v0.1 = all-reduce(%7, axes=[x, y], op=or) : bool[]",
    ]
    assert show(module).count("stablehlo.custom_call @f(%a.unsharded)") == 1


def test_a_conditional_with_an_opaque_operation_runs_on_one_device() -> None:
    text = f"""\
mesh @m = [x=2]
mesh @one = [] devices=[1]

func @main(%i: i32[], %a: f32[4@x]) -> (f32[4@x]) {{
  %r = case(%i) : f32[4@-] on @one {{
    yield %a
  }} {{
    %0 = {OPAQUE} : f32[4]
    yield %0
  }}
  return %r
}}
"""
    module = Pipeline.parse(DEFAULT_PIPELINE)(parse(text))
    verify(module)
    outer, inner = (op for op in module.main.body.walk() if op.name == "case")
    assert inner in outer.blocks[1].ops


def test_a_manual_computation_beside_a_single_device_is_accepted() -> None:
    text = MANUAL.replace("f32[2@-] on @one", "f32[2]").replace(
        "  return %r", "  %s = sin(%r) : f32[4@-] on @one\n  return %s"
    )
    a = np.arange(4, dtype=np.float32)
    (found,) = run(Pipeline.parse(DEFAULT_PIPELINE)(parse(text)), [a])
    np.testing.assert_allclose(found, np.sin(np.exp(a)), rtol=1e-5)


def test_a_callback_on_a_single_device_is_called_once() -> None:
    text = PROGRAM.replace("sin(%a)", 'callback(%a, function="f")')
    module = Pipeline.parse(DEFAULT_PIPELINE)(parse(text))
    assert [op.name for op in module.main.body.ops if op.spec.effect] == ["callback"]


MANUAL = """\
mesh @m = [x=2]
mesh @one = [] devices=[1]

func @main(%a: f32[4@x]) -> (f32[4@x]) {
  %r = manual_computation(%a, axes=[x], in_axes=[[[x]]], out_axes=[[[x]]]) : f32[4@x] {
    (%p: f32[2]) =>
    %q = exp(%p) : f32[2@-] on @one
    yield %q
  }
  return %r
}
"""


ORDERED = """\
mesh @m = [x=2]
mesh @one = [] devices=[1]

func @main(%t: token[], %a: f32[4@x]) -> (token[], f32[4@x]) {
  %u, %r = opaque(%t, %a, operation="d.op", head="", attributes="", types="") \
: token[] on @one, f32[4@-] on @one
  %v, %s = opaque(%u, %r, operation="d.op", head="", attributes="", types="") \
: token[] on @one, f32[4@-] on @one
  return %v, %s
}
"""


@pytest.mark.parametrize("pipeline", [DEFAULT_PIPELINE, SHARDY_PIPELINE])
def test_tokens_order_the_operations_of_a_device(pipeline: str) -> None:
    module = Pipeline.parse(pipeline)(parse(ORDERED))
    verify(module)
    first, second = (op for op in module.main.body.walk() if op.name == "case")
    tokens = [case.results[0] for case in (first, second)]
    assert [token.type.dtype for token in tokens] == ["token", "token"]
    assert first.blocks[0].returns[0] is module.main.body.params[0]  # The other devices.
    assert second.blocks[0].returns[0] is tokens[0]
    assert module.main.body.returns[0] is tokens[1]
    assert str(module).count("all-reduce(") == 2
    known = re.sub(r"opaque\((%[\w.]+), (%[\w.]+), [^)]*\) : .*", r"call(\1, \2)", str(module))
    assert known.count("call(") == 2


@pytest.mark.parametrize(
    ("program", "error"),
    [
        (
            PROGRAM.replace("devices=[1]", "devices=[2]"),
            "%0 is on device 2, and the mesh @m of @main has the devices 0 to 1; place it on one "
            "of them",
        ),
        (
            PROGRAM.replace("%0 = sin(%a)", f"%0, %t = {OPAQUE}").replace(
                "f32[4@-] on @one\n  %1", 'f32[4@-] on @one, token[] on @one loc("f.py":7:1)\n  %1'
            ),
            "%t (f.py:7) is a token that opaque on device 1 creates, and the other devices cannot "
            "receive tokens; pass a token to the operation, or leave its sharding out, so that all "
            "devices run it",
        ),
        (
            MANUAL,
            "%q in the manual computation %r is on device 1, but devices have different values "
            "there; leave its sharding out, or place the value outside of the manual computation",
        ),
        (
            PROGRAM.replace(
                "%1 = add(%0, %a) : f32[4]", "%1 = add(%0, %a) : f32[4@y] on @n"
            ).replace("mesh @one", "mesh @n = [y=2]\nmesh @one"),
            "@main has values on the meshes @m and @one and @n; a program runs on one mesh: state "
            "the sharding of %1 on @m",
        ),
    ],
    ids=["a device outside of the mesh", "a token", "a manual computation", "two meshes"],
)
@pytest.mark.parametrize("pipeline", ["partition", DEFAULT_PIPELINE, SHARDY_PIPELINE])
def test_programs_that_cannot_be_replicated_are_refused(
    program: str, error: str, pipeline: str
) -> None:
    with pytest.raises(PartitionError) as caught:
        Pipeline.parse(pipeline)(parse(program))
    found = str(caught.value).partition("\n")[0]
    assert found.replace(".before_reshard", "") == error  # A pass may add a reshard.
