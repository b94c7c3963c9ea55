"""The text of emitted programs: one line per value, under the name of the value."""

from typing import Any

import numpy as np
import pytest

import shardir as sd
from shardir.backends.emission import EmissionError, get_target
from shardir.backends.gpu.line_wrapping import wrap_code, wrap_line
from shardir.text.parser import parse
from tests.backends.gpu.program_execution import main_function_text, program_text
from tests.backends.gpu.programs import PROGRAMS


def test_values_keep_their_names_unless_python_reserves_them() -> None:
    assert (
        main_function_text(
            parse("""\
func @f(%x: f32[4, 6], %h.1: f32[6], %lambda: i32[4]) -> (f32[4, 6], f32[4], i32[4]) {
  %0 = broadcast(%h.1, dims=[1]) : f32[4, 6]
  %pad = add(%x, %0) : f32[4, 6]
  %c = constant(value=0.5) : f32[4, 6]
  %half = mul(%pad, %c) : f32[4, 6]
  %print = sum(%half, dims=[1]) : f32[4]
  %two = constant(value=2) : i32[4]
  %compute_x = shift_left(%lambda, %two) : i32[4]
  return %half, %print, %compute_x
}
""")
        )
        == """\
def main(comm, x, h_1, lambda_):
    v0 = h_1.expand(4, 6)  # broadcast: f32[4, 6]
    pad = x + v0  # add: f32[4, 6]
    half = pad * 0.5  # mul: f32[4, 6]
    print_ = half.sum(1)  # sum: f32[4]
    v_compute_x = lambda_ << 2  # shift_left: i32[4]
    return (half, print_, v_compute_x)"""
    )


def test_large_values_are_deleted_after_their_last_use() -> None:
    assert (
        main_function_text(
            parse("""\
func @f(%x: f32[512, 512], %y: f32[512, 512]) -> (f32[512]) {
  %a = dot(%x, %y, dims="ij,kj->ki") : f32[512, 512]
  %b = tanh(%a) : f32[512, 512]
  %s = sum(%b, dims=[0]) : f32[512]
  return %s
}
""")
        )
        == """\
def main(comm, x, y):
    a = y @ x.T  # dot: f32[512, 512]
    b = torch.tanh(a)  # tanh: f32[512, 512]
    del a
    s = b.sum(0)  # sum: f32[512]
    return (s,)"""
    )


def test_values_used_in_branches_are_deleted_after_the_last_branch() -> None:
    main_text = main_function_text(
        parse("""\
func @f(%b: bool[], %x: f32[512, 512]) -> (f32[512]) {
  %a = tanh(%x) : f32[512, 512]
  %s = case(%b) : f32[512] {
    () =>
    %r = sum(%a, dims=[0]) : f32[512]
    yield %r
  } {
    () =>
    %t = max(%x, dims=[0]) : f32[512]
    yield %t
  }
  %y = neg(%s) : f32[512]
  return %y
}
""")
    )
    assert (
        main_text
        == """\
def main(comm, b, x):
    a = torch.tanh(x)  # tanh: f32[512, 512]
    if not b.item():
        s = a.sum(0)  # sum: f32[512]
    else:
        s = x.amax(0)  # max: f32[512]
    del a
    y = -s  # neg: f32[512]
    return (y,)"""
    )


def test_control_flow_becomes_python_loops_and_branches() -> None:
    assert (
        main_function_text(
            parse("""\
func @f(%n: i32[], %x: f32[4], %xs: f32[3, 4]) -> (f32[4], f32[4], f32[3, 4]) {
  %one = constant(value=1) : i32[]
  %count, %last = while(%n, %x) : i32[], f32[4] {
    (%i: i32[], %v: f32[4]) =>
    %five = constant(value=5) : i32[]
    %more = lt(%i, %five) : bool[]
    yield %more
  } {
    (%j: i32[], %u: f32[4]) =>
    %next = add(%j, %one) : i32[]
    %w = add(%u, %u) : f32[4]
    yield %next, %w
  }
  %total, %each = scan(%last, %xs, carries=1, length=3, reverse=true) : f32[4], f32[3, 4] {
    (%sum: f32[4], %row: f32[4]) =>
    %grown = add(%sum, %row) : f32[4]
    yield %grown, %grown
  }
  %big = case(%count) : f32[4] {
    () =>
    yield %x
  } {
    () =>
    %neg = neg(%total) : f32[4]
    yield %neg
  }
  return %big, %total, %each
}
""")
        )
        == """\
def main(comm, n, x, xs):
    device = comm.device
    count, last = n, x  # while: i32[], f32[4]
    while True:
        more = count < 5  # lt: bool[]
        if not more.item():
            break
        next_ = count + 1  # add: i32[]
        w = last + last  # add: f32[4]
        count, last = next_, w
    total = last  # scan: f32[4]
    each = torch.empty((3, 4), dtype=torch.float32, device=device)  # scan: f32[3, 4]
    for step in reversed(range(3)):
        row = xs[step]  # f32[4]
        grown = total + row  # add: f32[4]
        each[step] = grown
        total = grown
    branch = count.item()  # case: which branch
    if branch == 0:
        big = x  # case: f32[4]
    else:
        big = -total  # neg: f32[4]
    return (big, total, each)"""
    )


def test_branches_without_results_are_empty() -> None:
    assert (
        main_function_text(
            parse("""\
func @f(%b: bool[], %x: f32[4]) -> (f32[4]) {
  %unused = case(%b) : f32[4] {
    () =>
    %c = constant(value=1.0) : f32[4]
    yield %c
  } {
    () =>
    yield %x
  }
  return %x
}
""")
        )
        == """\
def main(comm, b, x):
    if not b.item():
        pass
    else:
        unused = x  # case: f32[4]
    return (x,)"""
    )


def test_the_precision_option_sets_the_precision_of_f32_products() -> None:
    with sd.cpu_devices(4):
        emission = PROGRAMS["mlp_dp"]().emission("gpu")
    target = get_target("gpu")
    for precision in ("ieee", "tf32"):
        text = target.emit(emission, {"precision": precision})["mlp_step.py"]
        assert f'torch.backends.cuda.matmul.fp32_precision = "{precision}"' in str(text)
    with pytest.raises(EmissionError) as caught:
        target.emit(emission, {"precision": "low"})
    assert str(caught.value) == (
        "precision='low' is none of ieee, tf32, the ways to multiply f32 on GPUs"
    )


def test_scatters_of_complex_products_are_rejected() -> None:
    with pytest.raises(EmissionError) as caught:
        program_text(
            parse("""\
func @f(%x: c64[4], %i: i32[2, 1], %u: c64[2]) -> (c64[4]) {
  %z = scatter(%x, %i, %u, update_window_dims=[], inserted_window_dims=[0], scatter_dims=[0], \
op="mul") : c64[4]
  return %z
}
""")
        )
    assert str(caught.value) == (
        "scatter %z: torch cannot multiply c64 into elements at indices of a tensor; "
        "scatter real and imaginary parts of logarithms, or multiply in a loop"
    )


def test_long_lines_are_wrapped_at_brackets() -> None:
    assert (
        wrap_line("    y = call(first, second, third)", 40) == "    y = call(first, second, third)"
    )
    assert wrap_line("    y = call(first, second, third)", 30) == (
        "    y = call(\n        first, second, third\n    )"
    )
    assert wrap_line("    y = call(first, second, third)", 20) == (
        "    y = call(\n        first,\n        second,\n        third,\n    )"
    )
    assert wrap_code("x = (f(a) for a in (first, second))", 24) == (
        "x = (\n    f(a)\n    for a in (\n        first, second\n    )\n)"
    )
    assert (
        wrap_code('"""\na long line that is text\n"""', 10) == '"""\na long line that is text\n"""'
    )


def test_small_all_reduces_are_combined() -> None:
    """One all-reduce sums all gradients; the loss has its own, because it is used earlier."""
    with sd.cpu_devices(4):
        lowered = PROGRAMS["mlp_dp"]()
    text = str(get_target("gpu").emit(lowered.emission("gpu"), {})["mlp_step.py"])
    assert text.count("comm.all_reduce(") == 2
    assert "params_w1_grad = params_w1_grad_row.reshape(16, 32)" in text


def test_lines_have_at_most_100_columns() -> None:
    def many(*xs: Any) -> list[Any]:
        return [x + 1 for x in xs]

    given = [sd.ShapeDtypeStruct((4,), np.float32)] * 30
    text = str(get_target("gpu").emit(sd.jit(many).lower(*given).emission("gpu"), {})["many.py"])
    assert max(map(len, text.splitlines())) <= 100


def test_programs_with_host_reads_exclude_cuda_graphs() -> None:
    def values(x: Any) -> Any:
        return sd.numpy.linalg.eigvalsh(x)

    emission = sd.jit(values).lower(sd.ShapeDtypeStruct((4, 4), np.float32)).emission("gpu")
    text = str(get_target("gpu").emit(emission, {})["values.py"])
    assert "makes the host read what the device has computed" in text
