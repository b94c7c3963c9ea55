"""Text and IR convert into each other without loss."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from shardir.frontend.random_programs.scope import SAMPLERS
from shardir.ir.builder import Builder
from shardir.ir.dtypes import KEYS
from shardir.ir.equality import find_difference
from shardir.ir.mesh import Mesh
from shardir.ir.module import Block, Function, Module, Op, Value
from shardir.ir.operation import OPS, Dense, OpSpec, Symbol
from shardir.ir.sharding import Axis, Sharding
from shardir.ir.types import TensorType
from shardir.text.parser import parse
from shardir.text.printer import print_module
from shardir.verify.verifier import verify
from tests.dtype_groups import DTYPES
from tests.programs.strategies import any_modules, modules

pytestmark = pytest.mark.sample(3)

MLP = """\
mesh @grid = [data=4, model=2]

func @mlp(
  %x: f32[64@data, 128],
  %w1: f32[128, 256@model],
  %b1: f32[256],
) -> (f32[64, 256]) {
  %0 = dot(%x, %w1, dims="bi,ih->bh") : f32[64, 256]
  %1 = broadcast(%b1, dims=[1]) : f32[64, 256]
  %h = add(%0, %1) : f32[64, 256]
  return %h
}
"""

PARTITIONED = """\
mesh @grid = [data=4, model=2]

spmd func @f(
  %x: f32[16, 128] of f32[64@data, 128@-],
  %w: f32[128, 128] of f32[128@-, 256@model],
  %s: f32[] of f32[],
) -> (f32[16, 128] of f32[64@data, 128@-], f32[] of f32[]) {
  %y.partial = dot(%x, %w, dims="bi,ih->bh") : f32[16, 128]
  %y = all-reduce(%y.partial, axes=[model, data:(1)2], op=add) : f32[16, 128]
  %z = collective-permute(%y, source=[data:(2)2], target=[model]) : f32[16, 128]
  return %z, %s
}
"""

BLOCKS = """\
func @loop(
  %x: f32[4],
  %xs: f32[10, 4],
  %p: bool[],
) -> (f32[4], f32[10, 4], f32[4]) {
  %s, %ys = scan(%x, %xs, carries=1, length=10) : f32[4], f32[10, 4] {
    (%c: f32[4], %row: f32[4]) =>
    %n = add(%c, %row) : f32[4]
    %m = case(%p) : f32[4] {
      %a = neg(%n) : f32[4]
      yield %a
    } {
      yield %x
    }
    yield %m, %n
  }
  %after = exp(%s) : f32[4]
  return %s, %ys, %after
}
"""

SHARDINGS = """\
mesh @a = [x=4, y=2]
mesh @b = [z=8] devices=[7, 6, 5, 4, 3, 2, 1, 0]
mesh @one = [] devices=[3]

func @f(
  %0: f32[8],
  %1: f32[8] on @a,
  %2: f32[8@-],
  %3: f32[8@x],
  %4: f32[8@x?],
  %5: f32[8@(x, y)],
  %6: f32[8@(x, y)? p1],
  %7: f32[8@x:(1)2],
  %8: f32[8@(y, x:(2)2) p0],
  %9: f32[8@? p2],
  %10: f32[8@x] replicated(y),
  %11: f32[8] replicated(x:(1)2, y),
  %12: f32[8@x] unreduced(y),
  %13: f32[8] replicated(x) unreduced[max](y),
  %14: f32[8@z:(2)4?] unreduced[min](z:(1)2) on @b,
  %15: f32[8] on @one,
  %16: f32[] replicated(x),
  %17: f32[] on @a,
) -> (f32[8@x], f32[8] on @a, f32[8]) {
  return %0, %1, %2
}
"""

SMALL = """\
func @empty() -> () {
  return
}

func @"not a word"(
  %"a b": key[2],
) -> () {
  return
}
"""


@pytest.mark.parametrize("text", [MLP, PARTITIONED, BLOCKS, SHARDINGS, SMALL, ""])
def test_printing_a_parsed_text_reproduces_it(text: str) -> None:
    module = parse(text)
    verify(module)

    assert str(module) == text


@given(any_modules())
def test_random_modules_round_trip(module: Module) -> None:
    text = print_module(module, locations=True)
    again = parse(text)

    assert find_difference(module, again, locations=True) is None
    assert print_module(again, locations=True) == text


@given(any_modules())
def test_text_without_locations_keeps_everything_else(module: Module) -> None:
    again = parse(str(module))

    assert find_difference(module, again) is None
    assert all(op.loc is None and op.why == "" for op in again.main.body.walk())


@pytest.mark.parametrize("name", list(OPS))
def test_every_operation_round_trips(name: str) -> None:
    @settings(max_examples=10)
    @given(modules(ops=[name], size=2))
    def check(module: Module) -> None:
        assert find_difference(module, parse(str(module))) is None

    check()


def test_random_modules_contain_all_operations() -> None:
    assert sorted(SAMPLERS) == sorted(OPS)


def numbers() -> st.SearchStrategy[Any]:
    return st.one_of(st.booleans(), st.integers(), st.floats(), st.complex_numbers())


def arrays(dtype: str) -> st.SearchStrategy[Dense]:
    def build(shape: list[int], data: Any) -> Dense:
        type = TensorType(tuple(shape), dtype)
        raw: bytes = data.draw(st.binary(min_size=type.nbytes, max_size=type.nbytes))
        if dtype == "bool":
            raw = bytes(byte & 1 for byte in raw)
        return Dense(np.frombuffer(raw, type.numpy).reshape(type.shape))

    return st.builds(build, st.lists(st.sampled_from([0, 1, 2, 3, 9]), max_size=3), st.data())


def attributes() -> st.SearchStrategy[Any]:
    words = st.from_regex(r"[A-Za-z_][\w-]*", fullmatch=True)
    symbols = words.filter(lambda word: word not in ("true", "false", "inf", "nan")).map(Symbol)
    axes = st.builds(Axis, st.just("x"), st.sampled_from([1, 2]), st.sampled_from([1, 2, 4]))
    leaves = st.one_of(
        numbers(),
        st.text(),
        symbols,
        axes,
        st.sampled_from(sorted({*DTYPES} - {*KEYS})).flatmap(arrays),
    )
    return st.recursive(leaves, lambda inner: st.lists(inner, max_size=4).map(tuple))


@contextmanager
def any_operation() -> Iterator[OpSpec]:
    """Return an operation with any operands, attributes and blocks, and the stated results."""

    def type(*operands: TensorType, result: Any, blocks: Any, **attrs: Any) -> Any:
        return result

    spec = OPS["any-thing"] = OpSpec("any-thing", type, blocks=-1)
    try:
        yield spec
    finally:
        del OPS["any-thing"]


MESH = Mesh("m", (("x", 8),))
BARE = Block((), (), ())


@given(st.dictionaries(st.sampled_from(["a", "value", "axes", "on", "loc"]), attributes()))
def test_every_attribute_round_trips_bitwise(attrs: dict[str, Any]) -> None:
    with any_operation() as spec:
        if "axes" in attrs:
            attrs["axes"] = (Axis("x", 1, 8), Axis("x", 2, 2))
        op = Op(spec, (), (), attrs, (BARE,))
        module = Module((MESH,), (Function("f", Block((), (op,), ()), ()),))

        assert find_difference(module, parse(str(module))) is None


def test_an_operation_without_results_or_operands() -> None:
    text = """\
func @f() -> () {
  any-thing() {
    yield
  } {
    any-thing(word=loc) {
      yield
    }
    yield
  }
  return
}
"""
    with any_operation():
        assert str(parse(text)) == text


@pytest.mark.parametrize(
    ("attr", "text"),
    [
        (1, "1"),
        (True, "true"),
        (1.0, "1.0"),
        (1e30, "1e+30"),
        (-0.0, "-0.0"),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
        (complex(1, -0.0), "complex(1.0, -0.0)"),
        ('a "b"\n\\', '"a \\"b\\"\\n\\\\"'),
        ("größe", '"größe"'),
        (Symbol("add"), "add"),
        (Symbol("true"), '"true"'),
        (((1, 2), ()), "[[1, 2], []]"),
        (Axis("x", 1, 8), "x"),
        (Axis("x", 2, 2), "x:(2)2"),
        (
            Dense(np.array([[0.1, 2], [np.nan, 1e20]], np.float32)),
            "dense(f32, [[0.1, 2.0], [nan, 1e+20]])",
        ),
        (Dense(np.array(True)), "dense(bool, true)"),
        (Dense(np.array([1 + 2j], np.complex64)), "dense(c64, [complex(1.0, 2.0)])"),
        (Dense(np.zeros((0, 3), np.int8)), 'dense(i8[0, 3], "")'),
        (Dense(np.zeros(65, np.bool_)), f'dense(bool[65], "{"A" * 87}=")'),
        (Dense(np.array([-np.nan], np.float16)), 'dense(f16[1], "AP4=")'),
    ],
)
def test_the_text_of_an_attribute(attr: Any, text: str) -> None:
    with any_operation() as spec:
        op = Op(spec, (), (), {"axes": attr}, (BARE,))
        module = Module((MESH,), (Function("f", Block((), (op,), ()), ()),))

        assert f"  any-thing(axes={text}) {{\n" in str(module)


def test_only_clashing_names_are_made_unique() -> None:
    type = TensorType((), "f32")
    values = [Value(type, name) for name in ("x", "x", "", "0", "x.1", "")]
    module = Module((), (Function("f", Block(tuple(values), (), ()), ()),))

    lines = str(module).splitlines()[1:-3]

    assert [line.split(":")[0].strip() for line in lines] == [
        "%x",
        "%x.2",
        "%1",
        "%0",
        "%x.1",
        "%2",
    ]


def test_locations_and_reasons_are_shown_on_request() -> None:
    text = """\
func @f(
  %x: f32[],
) -> (f32[]) {
  %y = exp(%x) : f32[] loc("a b.py":3:7)
  %z = exp(%y) : f32[] why("because")
  %s = scan(%z, carries=1, length=2) : f32[] loc("c.py":1:1) why("loop") {
    (%c: f32[]) =>
    %n = neg(%c) : f32[] loc("c.py":2:1)
    yield %n
  }
  return %s
}
"""
    module = parse(text)

    assert print_module(module, locations=True) == text
    assert "loc" not in str(module)
    assert "why" not in str(module)


def test_no_sharding_and_an_open_sharding_differ() -> None:
    module = parse("mesh @m = [x=2]\nfunc @f(%a: f32[4], %b: f32[4] on @m) -> () { return }")
    a, b = module.main.body.params

    assert a.sharding is None
    assert b.sharding == Sharding.open("m", 1)


def test_texts_are_parsed_concurrently() -> None:
    texts = [MLP, PARTITIONED, BLOCKS, SHARDINGS] * 25
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(lambda text: str(parse(text)), texts)) == texts


def test_comments_and_whitespace_are_ignored() -> None:
    text = "// one\nmesh@m=[x=2]// two\nfunc@f(%a:f32[4@x,2@-])->(){return}"

    assert str(parse(text)) == (
        "mesh @m = [x=2]\n\nfunc @f(\n  %a: f32[4@x, 2@-],\n) -> () {\n  return\n}\n"
    )


def test_an_invalid_module_is_printed() -> None:
    sharding = Sharding.of("none", [(Axis("q", 1, 2),)] * 2)
    ghost = Value(TensorType((2,), "f32"), "ghost", sharding)
    module = parse(MLP)
    body = module.main.body
    op = replace(body.ops[0], operands=(ghost, ghost), attrs={"what": np.float32(1), "set": {1}})
    broken = replace(body, ops=(op,), returns=(ghost,))

    text = print_module(
        Module((), (replace(module.main, body=broken, result_shardings=(sharding,)),))
    )

    assert '  %0 = dot(%ghost, %ghost, what=1.0, set="{1}") : f32[64, 256]\n' in text
    assert "-> (f32[2@q:(1)2, ?@q:(1)2] on @none)" in text


def test_bits_of_nan_round_trip() -> None:
    array = np.array([np.nan, -np.nan, 1.0])
    array.view(np.uint64)[0] |= 1
    constant = OPS["constant"]
    b = Builder()
    b.emit(constant, value=Dense(array), result=TensorType((3,), "f64"))
    module = Module((), (Function("f", b.block((), ()), ()),))
    (again,) = parse(str(module)).main.body.ops

    assert again.attrs["value"] == Dense(array)
