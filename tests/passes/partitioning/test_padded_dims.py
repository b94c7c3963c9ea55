"""`padded_dims`: which values of a manual computation are padded like its arguments."""

import pytest

from shardir.ir.sharding import Axis
from shardir.passes.partitioning.padded_dims import PaddedDim, PaddedDims, padded_dims
from shardir.text.parser import parse

A = PaddedDim((Axis("a", 1, 4),), 6)
B = PaddedDim((Axis("b", 1, 2),), 3)


def padding_of_results(body: str, **known: tuple[str, PaddedDims]) -> list[PaddedDims]:
    """Return the padding of the returned values; `known` has the types and padding of arguments."""
    params = "".join(f"  %{name}: {type},\n" for name, (type, _) in known.items())
    returns = body.rpartition("return ")[2].split(", ")
    names = [name.strip().lstrip("%") for name in returns]
    types = [_type_of(body, name) for name in names]
    text = f"mesh @m = [a=4, b=2]\n\nfunc @f(\n{params}) -> ({', '.join(types)}) {{\n{body}\n}}\n"
    block = parse(text).main.body
    given = {param: known[param.name][1] for param in block.params}
    found = padded_dims(block, given)
    return [found.get(value, (None,) * value.type.rank) for value in block.returns]


def _type_of(body: str, name: str) -> str:
    """Return the type of a value from the line that defines it."""
    for line in body.splitlines():
        made, equals, rest = line.strip().partition(" = ")
        names = [each.lstrip("%") for each in made.split(", ")]
        if equals and name in names:
            types = rest.removesuffix(" {").rpartition(" : ")[2]
            parts = types.replace("], ", "]|").split("|")
            return parts[names.index(name)]
    raise AssertionError(name)


OPAQUE = 'opaque(%x, operation="x.y", head="x.y %", attributes="", types=""'


@pytest.mark.parametrize(
    ("operation", "padding"),
    [
        ("exp(%x) : f32[2, 6]", (A, B)),
        ("add(%x, %x) : f32[2, 6]", (A, B)),
        ("add(%x, %plain) : f32[2, 6]", (A, B)),
        ("add(%x, %other) : f32[2, 6]", (A, None)),
        ("transpose(%x, perm=[1, 0]) : f32[6, 2]", (B, A)),
        ("sum(%x, dims=[0]) : f32[6]", (B,)),
        # Running sums keep positions, a sort and a reversal move them.
        ("cumsum(%x, dim=0, reverse=false) : f32[2, 6]", (A, B)),
        ("sort(%x, dim=0, keys=1, stable=true) : f32[2, 6]", (None, B)),
        ("reverse(%x, dims=[1]) : f32[2, 6]", (A, None)),
        # A split or a merged dimension has other positions.
        ("reshape(%x) : f32[2, 2, 3]", (A, None, None)),
        ("reshape(%x) : f32[12]", (None,)),
        ("reshape(%x) : f32[1, 2, 6]", (None, A, B)),
        ("slice(%x, starts=[0, 0], strides=[1, 1]) : f32[2, 5]", (A, None)),
        ("concatenate(%x, %x, dim=1) : f32[2, 12]", (A, None)),
        # The dimension of one position stays as it is, and its copies do not.
        ("reshape(%one) : f32[1, 1, 3]", (A, A, None)),
        ("reshape(%ones) : f32[1, 1, 1]", (None, None, None)),
        ("reshape(%one) : f32[3]", (None,)),
        ("reshape(%two) : f32[1, 1, 3]", (A, A, B)),
        ("reshape(%three) : f32[1, 3]", (A, None)),
        ("broadcast(%one, dims=[0, 1]) : f32[4, 3]", (None, None)),
        # An exchange along the axes of a dimension moves its positions.
        ("all-reduce(%x, axes=[a], op=add) : f32[2, 6]", (None, B)),
        ("all-reduce(%x, axes=[b], op=add) : f32[2, 6]", (A, None)),
        ("optimization_barrier(%x) : f32[2, 6]", (A, B)),
        ("dynamic_slice(%x, %i, %i) : f32[2, 3]", (A, None)),
        # Without a rule, nothing is known.
        (f"{OPAQUE}) : f32[2, 6]", (None, None)),
        # A factor that covers a part of a dimension states no positions of it.
        (f'{OPAQUE}, rule="([i, j]) -> ([i, j]) {{i=2, j=6}}") : f32[2, 6]', (A, B)),
        (f'{OPAQUE}, rule="([i, j]) -> ([i, j]) {{i=2, j=6}}") : f32[2, 12]', (A, None)),
        (f'{OPAQUE}, rule="([i, j]) -> ([i, j]) {{i=2, j=12}}") : f32[2, 12]', (A, None)),
    ],
)
def test_an_operation(operation: str, padding: PaddedDims) -> None:
    found = padding_of_results(
        f"  %y = {operation}\n  return %y",
        x=("f32[2, 6]", (A, B)),
        plain=("f32[2, 6]", (None, None)),
        other=("f32[2, 6]", (A, A)),
        one=("f32[1, 3]", (A, None)),
        ones=("f32[1, 1]", (A, B)),
        two=("f32[1, 3]", (A, B)),
        three=("f32[1, 1, 3]", (A, None, None)),
        i=("i32[]", ()),
    )
    assert found == [padding]


def test_a_result_of_a_value_without_padding() -> None:
    body = f"  %y = {OPAQUE}) : f32[2, 6]\n  %z = add(%y, %x) : f32[2, 6]\n  return %z"
    assert padding_of_results(body, x=("f32[2, 6]", (A, B))) == [(A, B)]


LOOP = """\
  %0, %1 = scan(%x, carries=1, length=3) : f32[2], f32[3, 2] {{
    (%c: f32[2]) =>
    %d = {next}
    %e = exp(%c) : f32[2]
    yield %d, %e
  }}
  return %0, %1"""


@pytest.mark.parametrize(
    ("next_value", "padding"),
    [
        ("sin(%c) : f32[2]", [(A,), (None, A)]),
        ("sort(%c, dim=0, keys=1, stable=true) : f32[2]", [(None,), (None, None)]),
        ("add(%c, %other) : f32[2]", [(None,), (None, None)]),
    ],
)
def test_a_loop(next_value: str, padding: list[PaddedDims]) -> None:
    """The stacked results of a loop are padded if its carried values are padded in each round."""
    found = padding_of_results(
        LOOP.format(next=next_value), x=("f32[2]", (A,)), other=("f32[2]", (B,))
    )
    assert found == padding


def test_a_loop_that_returns_a_value_from_outside() -> None:
    body = """\
  %0 = scan(%x, carries=1, length=3) : f32[2] {
    (%c: f32[2]) =>
    yield %x
  }
  return %0"""
    assert padding_of_results(body, x=("f32[2]", (A,))) == [(A,)]


def test_a_loop_that_takes_slices() -> None:
    body = """\
  %0, %1 = scan(%x, %s, carries=1, length=3) : f32[2], f32[3, 2] {
    (%c: f32[2], %t: f32[2]) =>
    yield %t, %c
  }
  return %0, %1"""
    found = padding_of_results(body, x=("f32[2]", (A,)), s=("f32[3, 2]", (B, A)))
    assert found == [(A,), (None, A)]
    found = padding_of_results(body, x=("f32[2]", (A,)), s=("f32[3, 2]", (A, B)))
    assert found == [(None,), (None, None)]


def test_branches() -> None:
    body = """\
  %0 = case(%p) : f32[2] {{
    %1 = exp(%x) : f32[2]
    yield %1
  }} {{
    yield {other}
  }}
  return %0"""
    known = {"x": ("f32[2]", (A,)), "y": ("f32[2]", (B,)), "p": ("bool[]", ())}
    assert padding_of_results(body.format(other="%x"), **known) == [(A,)]
    assert padding_of_results(body.format(other="%y"), **known) == [(None,)]


def test_fused_operations() -> None:
    body = """\
  %0 = fused(%x) : f32[2] {
    (%a: f32[2]) =>
    %b = sin(%a) : f32[2]
    %c = mul(%b, %a) : f32[2]
    yield %c
  }
  return %0"""
    assert padding_of_results(body, x=("f32[2]", (A,))) == [(A,)]
