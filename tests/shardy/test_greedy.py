"""The greedy planner selects the collectives that the real Shardy selects."""

import re

import pytest
from hypothesis import given, strategies as st

pytest.importorskip("jaxlib")

from jaxlib.mlir import ir
from jaxlib.mlir.passmanager import PassManager

from shardir.ir.mesh import Mesh
from shardir.ir.sharding import Sharding
from shardir.passes.resharding.greedy import greedy_collectives
from tests.programs.shardings import shardings
from tests.shardy.oracle import context
from tests.shardy.suite.collectives import print_sharding, written

SIZES = st.sampled_from((2, 4, 8))
"""Others make Shardy print collectives that its own verifier refuses, now and then."""
_LINE = re.compile(r"%\w+ = sdy\.(\w+)( \[.*\])? %\w+ (out_sharding=.*>) : ")


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Mesh, tuple[int, ...], Sharding, Sharding]:
    sizes = draw(st.lists(SIZES, min_size=1, max_size=4))
    mesh = Mesh("mesh", tuple(zip("abcd", sizes, strict=False)))
    shape = (4096,) * draw(st.integers(1, 3))
    return mesh, shape, draw(shardings(mesh, shape)), draw(shardings(mesh, shape))


@given(pairs())
def test_shardy_selects_the_same_collectives(
    pair: tuple[Mesh, tuple[int, ...], Sharding, Sharding],
) -> None:
    mesh, shape, source, target = pair
    ours = [written(each, mesh) for each in greedy_collectives(source, target, shape)]
    assert ours == shardys(mesh, shape, source, target)


def shardys(mesh: Mesh, shape: tuple[int, ...], source: Sharding, target: Sharding) -> list[str]:
    """Return the operations that Shardy inserts for one reshard, as text without values."""
    sizes = ", ".join(f'"{name}"={size}' for name, size in mesh.axes)
    type = f"tensor<{'x'.join(map(str, shape))}xf32>"
    attribute = f"{{sdy.sharding = #sdy.sharding{print_sharding(source, mesh)}}}"
    text = f"""
        sdy.mesh @mesh = <[{sizes}]>
        func.func @main(%x: {type} {attribute}) -> {type} {{
          %y = sdy.reshard %x {print_sharding(target, mesh)} : {type}
          return %y : {type}
        }}"""
    with context(), ir.Location.unknown():
        parsed = ir.Module.parse(text)
        passes = "builtin.module(func.func(sdy-reshard-to-collectives))"
        PassManager.parse(passes).run(parsed.operation)
        lines = str(parsed).splitlines()
    found = (_LINE.match(line.strip()) for line in lines)
    return [f"{line[1]}{line[2] or ''} {line[3]}" for line in found if line]
