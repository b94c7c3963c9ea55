"""The greedy planner takes the collectives that the real Shardy takes."""

import re

import pytest
from hypothesis import given, strategies as st

pytest.importorskip("jaxlib")

from jaxlib.mlir import ir
from jaxlib.mlir.passmanager import PassManager

from shardir.mesh import Mesh
from shardir.passes.greedy import Collective, greedy_collectives
from shardir.placement import Axes, Axis, Sharding
from tests.shardings import shardings
from tests.shardy.oracle import context

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
def test_the_real_shardy_takes_the_same_collectives(
    pair: tuple[Mesh, tuple[int, ...], Sharding, Sharding],
) -> None:
    mesh, shape, source, target = pair
    ours = [written(each, mesh) for each in greedy_collectives(source, target, shape)]
    assert ours == shardys(mesh, shape, source, target)


def shardys(mesh: Mesh, shape: tuple[int, ...], source: Sharding, target: Sharding) -> list[str]:
    """What Shardy inserts for one reshard, as the text of its operations without values."""
    sizes = ", ".join(f'"{name}"={size}' for name, size in mesh.axes)
    type = f"tensor<{'x'.join(map(str, shape))}xf32>"
    attribute = f"{{sdy.sharding = #sdy.sharding{placed(source, mesh)}}}"
    text = f"""
        sdy.mesh @mesh = <[{sizes}]>
        func.func @main(%x: {type} {attribute}) -> {type} {{
          %y = sdy.reshard %x {placed(target, mesh)} : {type}
          return %y : {type}
        }}"""
    with context(), ir.Location.unknown():
        parsed = ir.Module.parse(text)
        passes = "builtin.module(func.func(sdy-reshard-to-collectives))"
        PassManager.parse(passes).run(parsed.operation)
        lines = str(parsed).splitlines()
    found = (_LINE.match(line.strip()) for line in lines)
    return [f"{line[1]}{line[2] or ''} {line[3]}" for line in found if line]


def written(made: Collective, mesh: Mesh) -> str:
    out = f"out_sharding={placed(made.sharding, mesh)}"
    name = made.name.replace("-", "_")
    if name == "collective_permute":
        return f"{name} {out}"
    if name == "all_to_all":
        ((dim, axes),) = ((dim, axes) for dim, axes in enumerate(made.axes) if axes)
        return f"{name} [{listed(axes, mesh)}: {dim}->{made.target}] {out}"
    return f"{name} [{', '.join(listed(axes, mesh) for axes in made.axes)}] {out}"


def placed(sharding: Sharding, mesh: Mesh) -> str:
    return f"<@mesh, [{', '.join(listed(axes, mesh) for axes in sharding.axes)}]>"


def listed(axes: Axes, mesh: Mesh) -> str:
    return f"{{{', '.join(named(axis, mesh) for axis in axes)}}}"


def named(axis: Axis, mesh: Mesh) -> str:
    part = "" if axis.is_whole(mesh) else f":({axis.pre}){axis.size}"
    return f'"{axis.name}"{part}'
