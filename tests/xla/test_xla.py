"""XLA computes equal results from our StableHLO, for fixed and random programs.

Programs are global programs with shardings, and per-device programs as replicas.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings

import shardir as sd
import shardir.numpy as snp
from shardir.interpret.interpreter import run
from shardir.interpret.numeric_comparison import are_close, is_stable, tolerance_of
from shardir.interpret.random_arguments import random_arguments
from shardir.ir.module import Block, Module, Op
from shardir.passes import Pipeline
from shardir.passes.pipeline import DEFAULT_PIPELINE
from shardir.stablehlo.printer import show
from shardir.stablehlo.writing.decompositions import CUSTOM_CALL_OPERATIONS
from shardir.stablehlo.writing.writer import ExportError
from shardir.text.parser import parse
from tests.passes.random_cases import Case, cases
from tests.xla.execution import XLA

PROGRAMS = {
    "dense layers": """\
mesh @m = [data=4, model=2]

func @mlp(
  %x: f32[16@data, 12],
  %w1: f32[12, 8@model],
  %b: f32[8],
  %w2: f32[8@model, 4],
) -> (f32[16@data, 4@-], f32[]) {
  %0 = dot(%x, %w1, dims="bi,ih->bh") : f32[16, 8]
  %1 = broadcast(%b, dims=[1]) : f32[16, 8]
  %2 = add(%0, %1) : f32[16, 8]
  %h = tanh(%2) : f32[16, 8]
  %y = dot(%h, %w2, dims="bh,ho->bo") : f32[16, 4]
  %s = sum(%y, dims=[0, 1]) : f32[]
  return %y, %s
}
""",
    "moves": """\
mesh @m = [x=4, y=2] devices=[0, 3, 2, 1, 4, 5, 7, 6]

func @moves(
  %a: f32[8@x, 8@y],
) -> (f32[8@y, 8@x], f32[8@-, 8@-], f32[8@-, 8@(y, x)], f32[8@(x, y), 8@-]) {
  %1 = neg(%a) : f32[8, 8]
  %2 = exp(%a) : f32[8, 8]
  %3 = abs(%a) : f32[8, 8]
  %4 = sign(%a) : f32[8, 8]
  return %1, %2, %3, %4
}
""",
    "neighbours": """\
mesh @m = [x=8]

func @neighbours(
  %a: f32[32@x, 3],
) -> (f32[32@x, 3@-], f32[16@x, 3@-], f32[32@x, 3@-]) {
  %1 = roll(%a, dim=0, shift=3) : f32[32, 3]
  %2 = reduce_window(%a, op=max, window=[3, 1], strides=[2, 1], padding=[[1, 0], [0, 0]], \
base_dilation=[1, 1], window_dilation=[1, 1]) : f32[16, 3]
  %3 = cumsum(%a, dim=0, reverse=false) : f32[32, 3]
  return %1, %2, %3
}
""",
    "random numbers": """\
mesh @m = [x=4, y=2]

func @drawn(
  %key: key[],
  %n: u32[],
) -> (u32[8@x, 6@y], u32[8@x], key[4@x], key[], u8[16@x]) {
  %1 = random_bits(%key, scheme=partitionable) : u32[8, 6]
  %ks = random_split(%key, scheme=partitionable) : key[8]
  %2 = random_bits(%ks, scheme=partitionable) : u32[8]
  %3 = random_split(%key, scheme=partitionable) : key[4]
  %4 = random_fold_in(%key, %n) : key[]
  %5 = random_bits(%key, scheme=partitionable) : u8[16]
  return %1, %2, %3, %4, %5
}
""",
    "a loop": """\
mesh @m = [x=2, y=4]

func @loop(
  %w: f32[3, 8, 8@x],
  %h: f32[16@y, 8],
) -> (f32[16@y, 8@-], f32[3@-, 16@y]) {
  %last, %norms = scan(%h, %w, carries=1, length=3, reverse=true) : f32[16, 8], f32[3, 16] {
    (%c: f32[16, 8], %v: f32[8, 8]) =>
    %0 = dot(%c, %v, dims="bi,ij->bj") : f32[16, 8]
    %1 = tanh(%0) : f32[16, 8]
    %2 = sum(%1, dims=[1]) : f32[16]
    yield %1, %2
  }
  return %last, %norms
}
""",
}


@pytest.fixture(scope="module")
def xla() -> Iterator[XLA]:
    worker = XLA()
    yield worker
    worker.close()


@pytest.mark.parametrize("name", PROGRAMS)
def test_replicas_compute_the_global_result(name: str, xla: XLA) -> None:
    module = parse(PROGRAMS[name])
    args = random_arguments(module)
    program = Pipeline.parse(DEFAULT_PIPELINE)(module)
    for want, got in zip(run(module, args), xla.replicas(program, args), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_with_shardings_computes_the_same(name: str, xla: XLA) -> None:
    module = Pipeline.parse("propagate")(parse(PROGRAMS[name]))
    args = random_arguments(module)
    for want, got in zip(run(module, args), xla.sharded(module, args), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


RANDOM = settings(
    # Failing programs are not reduced, because XLA compiles each attempt. The programs are always
    # the same, because several hundred more find bugs of XLA (padding of unevenly sharded complex
    # numbers, loops with unused carried values, products of f16 with infinite intermediates).
    phases=[Phase.explicit, Phase.generate],
    derandomize=True,
    max_examples=25,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)

XLA_FAULTS = (
    # XLA removes loop-invariant carried values, and keeps their shardings.
    re.compile(r"leaf_count == tuple_elements_\.size\(\)"),
    # XLA gives the operands of an all-to-all different layouts, which its verifier rejects, in a
    # message that shows the same shape twice.
    re.compile(r"operand shape (\S+), but the \d+th operand has shape \1\."),
)
"""Messages of XLA that tell faults of its own."""


@contextmanager
def without_xla_faults() -> Iterator[None]:
    """Reject a drawn program for which XLA has a bug."""
    try:
        yield
    except AssertionError as error:
        assume(not any(fault.search(str(error)) for fault in XLA_FAULTS))
        raise


def judge(module: Module, args: list[Any], got: list[Any]) -> None:
    want, tolerance = run(module, args), tolerance_of(module)
    if not are_close(want, got, tolerance):
        assume(is_stable(module, args, want, tolerance))
        for a, b in zip(want, got, strict=True):
            np.testing.assert_array_equal(b, a)


def test_conversions_for_an_algorithm_compute_as_the_algorithm_in_xla(xla: XLA) -> None:
    """The text states the dtypes of an algorithm, with the results of JAX for its name."""
    import jax

    numbers = np.random.default_rng(0)
    x, y = (numbers.random(shape, "float32") for shape in ((8, 32), (32, 8)))
    whole = sd.NamedSharding(sd.make_mesh((8,), ("d",)), sd.P())
    for name in ("F16_F16_F16", "BF16_BF16_F32"):
        for dtype in ("float16", "bfloat16", "float32"):
            operands = [np.asarray(snp.asarray(v).astype(dtype)) for v in (x, y)]

            def f(a: Any, b: Any, name: str = name) -> Any:
                return sd.lax.dot(a, b, precision=name)

            module = sd.jit(f, in_shardings=(whole, whole)).lower(*operands).module
            (found,) = xla.sharded(module, operands)
            expected = jax.jit(partial(jax.lax.dot, precision=name))(*operands)
            np.testing.assert_allclose(
                np.asarray(found, "float32"), np.asarray(expected, "float32"), 1e-6, err_msg=name
            )


@pytest.mark.long
@RANDOM
@given(case=cases())
def test_replicas_of_random_programs(xla: XLA, case: Case) -> None:
    assume(is_supported(case.module))
    args = random_arguments(case.module, whole=True)
    with without_xla_faults():
        got = xla.replicas(Pipeline.parse(case.pipeline)(case.module), args)
    judge(case.module, args, got)


@RANDOM
@given(case=cases())
def test_random_programs_with_shardings(xla: XLA, case: Case) -> None:
    assume(is_supported(case.module) and "reshard" not in names(case.module.main.body))
    module = Pipeline.parse("propagate")(case.module)
    assume(is_plain(module))
    args = random_arguments(module, whole=True)
    with without_xla_faults():
        got = xla.sharded(module, args)
    judge(case.module, args, got)


def every(block: Block) -> Iterator[Op]:
    """Return the operations of a block, including those of nested blocks."""
    for op in block.ops:
        yield op
        for inner in op.blocks:
            yield from every(inner)


def names(block: Block) -> set[str]:
    return {op.name for op in every(block)}


def is_supported(module: Module) -> bool:
    """Return whether XLA has all operations: no decompositions of ours, no callbacks."""
    unknown = {*CUSTOM_CALL_OPERATIONS, "callback", "pure-callback", "inspect-sharding"}
    return not unknown & names(module.main.body) and "scheme=original" not in str(module)


def is_plain(module: Module) -> bool:
    """Return whether all parameters and results are sharded evenly and reduced, as XLA requires."""
    main = module.main
    border = [(param, param.sharding) for param in main.body.params]
    border += list(zip(main.body.returns, main.result_shardings, strict=True))
    for value, sharding in border:
        whole = ((),) * value.type.rank if sharding is None else sharding.axes
        for size, axes in zip(value.type.shape, whole, strict=True):
            if size % prod(axis.size for axis in axes):
                return False
    return "unreduced" not in str(module)


def test_the_original_random_scheme_has_no_stablehlo_text() -> None:
    module = parse(PROGRAMS["random numbers"].replace("=partitionable", "=original"))
    assert "shardir.random_bits" in show(module)
    with pytest.raises(ExportError) as caught:
        show(module, for_xla=True)
    assert str(caught.value) == (
        "%1 uses scheme=original, which StableHLO operations cannot express; use "
        "scheme=partitionable"
    )


def test_functions_of_one_module_are_all_global_or_all_per_device() -> None:
    module = parse(PROGRAMS["moves"])
    partitioned = Pipeline.parse(DEFAULT_PIPELINE)(module)
    mixed = Module(module.meshes, (partitioned.main, module.main))
    with pytest.raises(ExportError, match="are not both programs of each device"):
        show(mixed)
