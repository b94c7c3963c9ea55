"""The NumPy executor gives the results of the interpreter, and computes replicated values once."""

import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from shardir.backends import get_backend
from shardir.backends.base import UnknownBackendError
from shardir.backends.numpy import BACKEND
from shardir.backends.numpy.kernel_table import kernel_of
from shardir.errors import NoRule
from shardir.interpret.interpreter import run
from shardir.interpret.numeric_comparison import are_close, tolerance_of
from shardir.interpret.random_arguments import random_arguments
from shardir.ir.builder import substitute
from shardir.ir.module import Module
from shardir.passes import Pipeline
from shardir.passes.pipeline import DEFAULT_PIPELINE
from shardir.text.parser import parse
from tests.backends.numpy.executor_results import executor_results
from tests.op_sample import Sample
from tests.programs.shardings import shardings
from tests.programs.strategies import modules
from tests.samples import ALL_SAMPLES, some_of_each

EXAMPLE_COUNT = max(settings().max_examples // 4, 25)


@some_of_each
@pytest.mark.parametrize("sample", ALL_SAMPLES, ids=lambda sample: sample.id)
def test_every_operation_gives_the_reference_results(sample: Sample) -> None:
    module = Module((), (sample.function(),))
    arguments = [np.asarray(a) for a in sample.arrays()]
    assert are_close(
        run(module, arguments), executor_results(module, arguments), tolerance_of(module)
    )


@settings(max_examples=EXAMPLE_COUNT)
@given(st.data())
def test_partitioned_programs_give_the_results_of_the_interpreter(data: st.DataObject) -> None:
    module = data.draw(modules())
    (mesh,) = module.meshes
    body = module.main.body
    sharded_params = {
        p: replace(p, sharding=data.draw(shardings(mesh, p.type.shape))) for p in body.params
    }
    function = replace(module.main, body=substitute(body, sharded_params))
    program = Pipeline.parse(DEFAULT_PIPELINE)(replace(module, functions=(function,)))
    arguments = random_arguments(program, whole=True)
    want, got = run(program, arguments), executor_results(program, arguments)
    assert are_close(want, got, tolerance_of(module))


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "dims",
    ["ik,kj->ij", "ik,kj->ji", "bik,bkj->bij", "ibk,kjb->jbi", "i,j->ij", "i,i->", "ij,ij->ij",
     "ik,jk->ij", "ijk,k->ij", "aib,bj->ai", "ab,cd->ac", ",i->i"],
)  # fmt: skip
@pytest.mark.parametrize("dtype", ["f32", "f64", "i32", "bf16", "c64"])
def test_contractions_give_the_results_of_einsum(dims: str, dtype: str) -> None:
    sizes = {c: n for n, c in enumerate("abcdijk", 2)}
    inputs, output = dims.split("->")
    shapes = [[sizes[c] for c in term] for term in (*inputs.split(","), output)]
    text = [f"{dtype}[{', '.join(map(str, shape))}]" for shape in shapes]
    module = parse(
        f"func @f(\n  %x: {text[0]},\n  %y: {text[1]},\n) -> ({text[2]}) {{\n"
        f'  %z = dot(%x, %y, dims="{dims}") : {text[2]}\n  return %z\n}}\n'
    )
    arguments = random_arguments(module, whole=True)
    assert are_close(
        run(module, arguments), executor_results(module, arguments), tolerance_of(module)
    )


REPLICATED = """\
mesh @m = [x=4]

spmd func @f(
  %a: f32[8] of f32[8],
  %b: f32[2] of f32[8@x],
) -> (f32[8] of f32[8@-], f32[2] of f32[8@x]) {
  %c = exp(%a) : f32[8]
  %d = exp(%b) : f32[2]
  return %c, %d
}
"""


def test_replicated_values_are_computed_once_and_shared() -> None:
    program = BACKEND.compile(parse(REPLICATED))
    a, b = np.arange(8, dtype=np.float32), np.arange(8, dtype=np.float32)
    c, d = program([[a] * 4, [b[2 * i : 2 * i + 2] for i in range(4)]])
    assert len({id(shard) for shard in c}) == 1
    assert len({id(shard) for shard in d}) == 4


LOOP = """\
mesh @m = [x=2]

spmd func @f(
  %a: f32[2] of f32[4@x],
) -> (f32[2] of f32[4@x], f32[3, 2] of f32[3, 4@x]) {
  %c, %s = scan(%a, carries=1, length=3, reverse=true) : f32[2], f32[3, 2] {
    (%v: f32[2]) =>
    %t = all-reduce(%v, axes=[x], op=add) : f32[2]
    yield %t, %v
  }
  return %c, %s
}
"""


def test_collectives_in_loops_run_in_every_iteration() -> None:
    a = np.array([1, 2, 3, 4], np.float32)
    last, stacked = executor_results(parse(LOOP), [a])
    np.testing.assert_array_equal(last, [16, 24, 16, 24])
    np.testing.assert_array_equal(stacked, [[8, 12, 8, 12], [4, 6, 4, 6], [1, 2, 3, 4]])


DIVERGING = """\
mesh @m = [x=3]

spmd func @f(
  %a: f32[1] of f32[3@x],
) -> (f32[1] of f32[3@x], f32[1] of f32[3@x]) {
  %i = axis-index(axes=[x]) : i32[]
  %r = case(%i) : f32[1] {
    yield %a
  } {
    %b = neg(%a) : f32[1]
    yield %b
  }
  %n, %d = while(%i, %a) : i32[], f32[1] {
    (%m: i32[], %c: f32[1]) =>
    %two = constant(value=2) : i32[]
    %less = lt(%m, %two) : bool[]
    yield %less
  } {
    (%o: i32[], %e: f32[1]) =>
    %one = constant(value=1) : i32[]
    %p = add(%o, %one) : i32[]
    %f = add(%e, %e) : f32[1]
    yield %p, %f
  }
  return %r, %d
}
"""


def test_devices_may_take_different_branches() -> None:
    module, ones = parse(DIVERGING), np.array([1, 2, 3], np.float32)
    want = run(module, [ones])
    np.testing.assert_array_equal(want, [[1, -2, -3], [4, 4, 3]])
    np.testing.assert_array_equal(executor_results(module, [ones]), want)


def test_threads_may_call_one_program_concurrently() -> None:
    module = Pipeline.parse(DEFAULT_PIPELINE)(
        parse(
            "mesh @m = [x=4]\n\nfunc @f(\n  %a: f32[1024@x, 256],\n) -> (f32[1024, 256]) {\n"
            "  %b = tanh(%a) : f32[1024, 256]\n  return %b\n}\n"
        )
    )
    program = BACKEND.compile(module)
    shard = np.ones((256, 256), np.float32)
    results: list[Any] = []
    threads = [
        threading.Thread(target=lambda i=i: results.append((i, program([[shard * i] * 4]))))
        for i in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 8
    for i, ((first, *_),) in results:
        np.testing.assert_allclose(first, np.tanh(shard * i))


def test_an_unknown_backend_is_an_error_with_the_known_ones() -> None:
    with pytest.raises(UnknownBackendError) as error:
        get_backend("tpu")
    assert str(error.value) == (
        "no backend is called 'tpu'; the backends are cpu, gpu, isolated, numpy, pjrt"
    )


def test_an_operation_without_kernel_is_an_error_with_the_table() -> None:
    module = parse("""\
func @f(
  %a: f32[4],
) -> (f32[4]) {
  %b = reshard(%a) : f32[4]
  return %b
}
""")
    (op,) = module.main.body.ops
    unknown = replace(op, spec=replace(op.spec, reference=None))
    with pytest.raises(NoRule) as caught:
        kernel_of(unknown)
    assert str(caught.value) == (
        "reshard %b: target 'cpu' has no rule for the operation\n"
        "  | %b = reshard(%a) : f32[4]\n"
        "write it with other operations, or add a rule: state the `reference` of "
        "define_op('reshard', ...) of shardir.extend"
    )


@pytest.mark.parametrize("attributes", ["", ', rule="r"'])
def test_derivative_regions_run_their_first_block(attributes: str) -> None:
    """The text of a program that is not inlined may contain regions; other blocks do not run."""
    name, rules = "checkpoint", ""
    if attributes:
        name = "custom-vjp"
        rules = """ {
    (%a: f32[4]) =>
    %g = sin(%a) : f32[4]
    yield %g, %a
  } {
    (%r: f32[4], %t: f32[4]) =>
    yield %t
  }"""
    module = parse(f"""\
func @f(
  %x: f32[4],
) -> (f32[4]) {{
  %y = {name}(%x{attributes}) : f32[4] {{
    (%b: f32[4]) =>
    %c = cos(%b) : f32[4]
    yield %c
  }}{rules}
  return %y
}}
""")
    x = np.arange(4, dtype=np.float32)
    for results in (run(module, [x]), executor_results(module, [x])):
        np.testing.assert_allclose(results[0], np.cos(x), rtol=1e-6)
