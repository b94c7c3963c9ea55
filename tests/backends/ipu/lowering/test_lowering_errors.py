"""Programs that IPUs cannot run are rejected before emission, with the value and an alternative."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir import lax, scipy
from shardir.backends.emission import Emission, EmissionError, get_target
from shardir.backends.ipu import TARGET
from shardir.backends.ipu.host_model import build_and_run
from shardir.backends.ipu.prepare.downcast import downcast_emission
from shardir.backends.ipu.target import MemoryWarning, program_text
from shardir.frontend.dispatch.stages.emission import make_emission
from shardir.ir.module import Loc
from shardir.ir.operation import OPS
from shardir.passes import Pipeline
from shardir.text.parser import parse
from tests.backends.ipu.host_model_execution import Case
from tests.backends.ipu.model_steps import mesh_of, normal_array, put_on_mesh


def emission_error(function: Any, *args: Any, **options: str) -> str:
    """Return the error text of emitting a function; source locations become LINE."""
    with pytest.raises(EmissionError) as error:
        program_text(sd.jit(function).lower(*args).emission("ipu"), options)
    return re.sub(r"\(\S+\.py:\d+\)", "(LINE)", str(error.value))


def emission_error_of_text(text: str, **options: str) -> str:
    """Return the error text of emitting a program in text form."""
    with pytest.raises(EmissionError) as error:
        program_text(make_emission(parse(text), "ipu"), options)
    return str(error.value)


DOUBLE_PRECISION = """
func @scaled(
  %x: f64[4],
  %n: i64[],
) -> (f64[4], i64[]) {
  %c = constant(value=2.5) : f64[4]
  %0 = mul(%x, %c) : f64[4]
  %1 = broadcast(%n, dims=[]) : i64[4]
  %2 = convert(%1) : f64[4]
  %y = add(%0, %2) : f64[4]
  %k = constant(value=1099511627776) : i64[]
  %m = add(%n, %k) : i64[]
  return %y, %m
}
"""


def test_unsupported_element_types_are_rejected() -> None:
    assert emission_error_of_text(DOUBLE_PRECISION) == (
        "%x: f64[4] is of an element type that IPUs do not have; convert to f32 with astype, or "
        "emit with downcast=f64:f32"
    )
    assert emission_error_of_text(DOUBLE_PRECISION, downcast="f64:f32") == (
        "%n: i64[] is of an element type that IPUs do not have; convert to i32 with astype, or "
        "emit with downcast=i64:i32"
    )
    assert emission_error(lambda x: snp.fft.fft(x), normal_array(4)) == (
        "%0: c64[4] (LINE) is of complex numbers, which IPUs do not have; keep the real and the "
        "imaginary part as two tensors of f32"
    )


def test_values_without_elements_are_rejected() -> None:
    assert emission_error(lambda x: x[:0] * 2, normal_array(4)) == (
        "%0: f32[0] (LINE) has no elements, and Poplar has no empty variables; leave out what "
        "computes it"
    )


def test_unsupported_operations_are_rejected() -> None:
    assert emission_error(lambda x: snp.linalg.svd(x, compute_uv=False), normal_array(3, 3)) == (
        "svd %0 (LINE): is a matrix decomposition, for which poplibs has no documented call; "
        "compute it on the host, and pass the result as an argument"
    )
    assert emission_error(scipy.special.gammaln, normal_array(3)) == (
        "lgamma %0 (LINE): has no expression in poplibs, nor an accurate one in single precision; "
        "compute it on the host, and pass the result as an argument"
    )
    assert emission_error(lambda x: lax.bitcast_convert_type(x, np.uint8), normal_array(3)) == (
        "bitcast %0 (LINE): reinterprets f32[3] as u8[3, 4], but Poplar requires types of equal "
        "width; extract the parts with shifts and `and`, or join them with shifts and "
        "`or`"
    )
    assert emission_error(lambda x, y: x**y, np.int32(3), np.int32(4)) == (
        "pow %0 (LINE): raises integers to powers that are known only at run time, for which "
        "poplibs has no call; convert to f32, or multiply"
    )


def test_device_counts_must_be_powers_of_two() -> None:
    mesh = mesh_of(3, names=("x",))
    assert emission_error(lambda x: x * 2, put_on_mesh(mesh, normal_array(6), "x")) == (
        "mesh 'mesh' has 3 devices, but IPU systems have powers of two; use a mesh of 2 or 4"
    )


UNREDUCED = """
mesh @m = [x=2]

func @f(
  %a: f32[4@-] unreduced(x),
) -> (f32[4]) {
  %b = neg(%a) : f32[4]
  return %b
}
"""


def test_unreduced_arguments_are_rejected() -> None:
    assert emission_error_of_text(UNREDUCED) == (
        "argument 'a' is unreduced over x, and the host shards arrays without reducing them; "
        "reshard it so that it is reduced"
    )


LARGE_ARGUMENT = """
func @f(
  %x: f32[{0}, 1024],
) -> (f32[{0}, 1024]) {{
  %y = tanh(%x) : f32[{0}, 1024]
  return %y
}}
"""


def test_arguments_larger_than_a_stream_are_rejected() -> None:
    assert emission_error_of_text(LARGE_ARGUMENT.format(32769)) == (
        "argument 'x' (f32[32769, 1024] a replica) takes 128.0 MiB, and a stream carries 128.0 "
        "MiB; shard it over more devices, or split it into several arguments"
    )


FULL_MEMORY = """
func @f(
  %x: f32[30000, 1024],
  %y: f32[30000, 1024],
  %z: f32[30000, 1024],
) -> (f32[{0}, 1024]) {{
  %a = dot(%x, %y, dims="ij,kj->ik") : f32[30000, 30000]
  %b = dot(%a, %z, dims="ij,jk->ik") : f32[{0}, 1024]
  return %b
}}
"""


def test_programs_larger_than_the_memory_are_rejected() -> None:
    assert emission_error_of_text(FULL_MEMORY.format(30000)) == (
        "the live values take 3.8 GiB on one replica, which is 2779566 bytes on each "
        "of 1472 tiles of 638976; shard them over more devices, or compute in smaller batches"
    )


def test_programs_that_fill_most_of_the_memory_give_a_warning() -> None:
    text = """
func @f(
  %x: f32[30000, 1024],
  %y: f32[30000, 1024],
  %z: f32[30000, 1024],
  %w: f32[30000, 1024],
) -> (f32[]) {
  %a = add(%x, %y) : f32[30000, 1024]
  %s = sum(%a, dims=[0, 1]) : f32[]
  %b = add(%z, %w) : f32[30000, 1024]
  %t = sum(%b, dims=[0, 1]) : f32[]
  %u = add(%s, %t) : f32[]
  return %u
}
"""
    message = (
        "the values of 'f' take 417392 of the 638976 bytes of each of 1472 tiles (65%); its code "
        "needs memory too"
    )
    with pytest.warns(MemoryWarning, match=re.escape(message)):
        program_text(make_emission(parse(text), "ipu"), {})


def test_unknown_options_are_rejected() -> None:
    case = Case.of(sd.jit(lambda x: x).lower(normal_array(3)), (normal_array(3),))
    with pytest.raises(EmissionError, match="target 'ipu' has no option 'striding'"):
        TARGET.emit(case.emission, {"striding": "gcl"})
    with pytest.raises(EmissionError, match="strided=mesh is none of ring, gcl"):
        TARGET.emit(case.emission, {"strided": "mesh"})
    assert emission_error(lambda x: x, normal_array(3), downcast="f64") == (
        "downcast=f64 has 'f64', which is not a cast to an element type of IPUs; write for example "
        "f64:f32,i64:i32,bf16:f16 (IPUs have bool, i8, u8, i16, u16, i32, u32, f16, f32)"
    )


def test_downcast_programs_give_close_results() -> None:
    text = DOUBLE_PRECISION.replace("1099511627776", "7")
    casts = {"f64": "f32", "i64": "i32"}
    emission = downcast_emission(make_emission(parse(text), "ipu", samples=True), casts)
    assert emission.samples is not None
    given, expected = emission.samples.arguments, emission.samples.results
    assert [a.dtype for a in (*given, *expected)] == [np.float32, np.int32] * 2
    results = build_and_run(program_text(emission, {}), given)
    for result, want in zip(results, expected, strict=True):
        np.testing.assert_allclose(result, want, rtol=1e-6)


def test_a_constant_that_does_not_fit_the_downcast_type_is_rejected() -> None:
    assert emission_error_of_text(DOUBLE_PRECISION, downcast="f64:f32,i64:i32") == (
        "constant %k.1: has integers that do not fit i32; remove its type from downcast"
    )


def test_captured_integers_that_do_not_fit_the_downcast_type_are_rejected() -> None:
    """Integers that do not fit are an error; floats become infinite, as in computations."""
    large, huge = np.full(200, 1 << 40), np.full(200, 1e300)
    with sd.enable_x64():
        whole = Case.of(sd.jit(lambda x: x + large).lower(np.arange(200)), ())
        wide = Case.of(sd.jit(lambda x: x * huge).lower(np.ones(200)), ())
    with pytest.raises(EmissionError, match=re.escape(
        "%captured has integers that do not fit i32; remove its type from downcast"
    )):  # fmt: skip
        downcast_emission(whole.emission, {"i64": "i32"})
    narrowed = downcast_emission(wide.emission, {"f64": "f32"})
    (captured,) = (b.value for b in narrowed.arguments if b.value is not None)
    np.testing.assert_array_equal(captured, np.full(200, np.inf, np.float32), strict=True)


def test_bitcasts_of_a_downcast_type_are_rejected() -> None:
    text = """
func @f(
  %x: u16[4],
) -> (bf16[4]) {
  %y = bitcast(%x) : bf16[4]
  return %y
}
"""
    assert emission_error_of_text(text, downcast="bf16:f16") == (
        "bitcast %y: depends on the bits of bf16, which differ from those of f16; write the "
        "operation with f16"
    )


NEGATION = """\
func @f(
  %x: f32[4],
) -> (f32[4]) {
  %y = neg(%x) : f32[4]
  %z = exp(%y) : f32[4]
  return %z
}
"""


@pytest.mark.parametrize("elementwise", [False, True])
@pytest.mark.parametrize("target", ["ipu", "gpu"])
def test_an_operation_without_a_lowering_is_rejected(target: str, elementwise: bool) -> None:
    spec = replace(OPS["neg"], name="user_op", elementwise=elementwise)
    module = parse(NEGATION)
    first, second = module.main.body.ops
    first = replace(first, spec=spec, loc=Loc("user.py", 3, 1))
    body = replace(module.main.body, ops=(first, second))
    module = replace(module, functions=(replace(module.main, body=body),))
    chosen = get_target(target)
    with pytest.raises(EmissionError) as error:
        chosen.emit(Emission.of(Pipeline.parse(chosen.pipeline)(module)), {})
    # As they are called in their group.
    name, operand = ("y.1", "x.1") if elementwise else ("y", "x")
    how = {
        ("gpu", False): "@gpu_rule('user_op') of shardir.extend",
        ("gpu", True): "@gpu_rule('user_op') of shardir.extend",
        ("ipu", False): "@lowers('user_op') of shardir.backends.ipu.lowering.lowering_table",
        ("ipu", True): "@ipu_rule('user_op') of shardir.extend",
    }
    assert str(error.value) == (
        f"user_op %{name} (user.py:3): target {target!r} has no rule for the operation\n"
        f"  | %{name} = user_op(%{operand}) : f32[4]\n"
        f"write it with other operations, or add a rule: {how[target, elementwise]}"
    )
