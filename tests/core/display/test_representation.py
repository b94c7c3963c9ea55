"""Representations: the text of programs and tables, complete if it is short, bounded always."""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import shardir
from shardir import numpy as jnp
from shardir.backends.emission import Emission
from shardir.cost.communication import Collective
from shardir.display.representation import MAX_COLUMNS, MAX_LINES, abbreviate, abbreviate_items
from shardir.frontend.arrays.signature import ShapeDtypeStruct
from shardir.frontend.stories.story_files import Story, StoryStep
from shardir.frontend.stories.story_syntax import Section
from shardir.ir.mesh import Mesh
from shardir.sharding import AbstractMesh, NamedSharding, PartitionSpec as P

PROGRAM = """\
mesh @mesh = [data=4, model=2]

func @f(
  %x: f32[64@data, 8@-],
  %w: f32[8@-, 16@model],
) -> (f32[]) {
  %h = dot(%x, %w, dims="bi,ih->bh") : f32[64, 16]
  %s = sum(%h, dims=[0, 1]) : f32[]
  return %s
}
"""

LOOP = """\
func @g(
  %x: f32[4],
) -> (f32[4]) {
  %i = constant(value=0) : i32[]
  %j, %y = scan(%i, %x, carries=2, length=3, reverse=false) : i32[], f32[4] {
    (%k: i32[], %z: f32[4]) =>
    %d = add(%z, %z) : f32[4]
    yield %k, %d
  }
  return %y
}
"""


def test_a_module_shows_its_text() -> None:
    assert repr(shardir.parse(PROGRAM)) == PROGRAM.rstrip("\n")


def test_parts_of_a_module_show_their_text() -> None:
    main = shardir.parse(LOOP).main
    assert repr(main) == LOOP.rstrip("\n")
    assert repr(main.body.ops[0]) == "%i = constant(value=0) : i32[]"
    assert repr(main.body.ops[1]) == "\n".join(
        line.removeprefix("  ") for line in LOOP.splitlines()[4:9]
    )
    assert repr(main.body.ops[1].blocks[0]) == (
        "{\n  (%k: i32[], %z: f32[4]) =>\n  %d = add(%z, %z) : f32[4]\n  yield %k, %d\n}"
    )
    assert repr(main.body.params[0]) == "%x: f32[4]"


def test_a_part_without_its_meshes_shows_the_sizes_of_axes() -> None:
    main = shardir.parse(PROGRAM).main
    assert repr(main.body.params[0]) == "%x: f32[64@data:(1)4, 8@-] on @mesh"


def test_a_long_text_lacks_its_middle() -> None:
    lines = [str(number) for number in range(100)]
    assert abbreviate("\n".join(lines), comment="// ").split("\n") == [
        *lines[:39],
        "// ... 41 lines omitted: a representation has at most 60 lines; print(x) shows all ...",
        *lines[80:],
    ]
    assert abbreviate("\n".join(lines[:60])) == "\n".join(lines[:60])


def test_a_long_line_lacks_its_middle() -> None:
    short = abbreviate("a" * 900 + "b" * 100)
    assert len(short) == MAX_COLUMNS
    assert short == "a" * 274 + " ... 1,000 characters ... " + "b" * 100


def test_a_long_sequence_lacks_its_middle() -> None:
    assert abbreviate_items((3, 1, 2)) == "[3, 1, 2]"
    text = abbreviate_items([*range(1000)])
    assert text.startswith("[0, 1, 2,")
    assert " 31, ... 936 omitted ..., 968, " in text


def test_printing_shows_all() -> None:
    module = shardir.make_ir(repeated_sine)(1.0)
    assert len(repr(module).splitlines()) == MAX_LINES
    assert str(module.main).splitlines() == str(module).splitlines()
    assert len(str(module).splitlines()) == 305


def repeated_sine(x: shardir.Array) -> shardir.Array:
    for _ in range(100):
        x = jnp.sin(x) * 2
    return x


def lowered() -> shardir.Lowered:
    mesh = shardir.make_mesh((4, 2), ("data", "model"))
    x = ShapeDtypeStruct((64, 8), np.float32, sharding=NamedSharding(mesh, P("data")))
    w = ShapeDtypeStruct((8, 16), np.float32, sharding=NamedSharding(mesh, P(None, "model")))
    return shardir.jit(matrix_sum).lower(x, w)


def matrix_sum(x: shardir.Array, w: shardir.Array) -> shardir.Array:
    total: shardir.Array = jnp.sum(x @ w)
    return total


def test_lowered_and_compiled_functions_show_their_text() -> None:
    program = lowered()
    assert repr(program) == program.as_text().rstrip("\n")
    assert str(program) == program.as_text()
    compiled = program.compile()
    assert repr(compiled) == compiled.as_text().rstrip("\n")
    assert "all-reduce(%total.partial, axes=[data, model], op=add)" in repr(compiled)


@pytest.mark.parametrize("report", ["conflicts", "coverage", "order_sensitive"])
def test_reports_show_their_tables(report: str) -> None:
    found = getattr(lowered(), report)()
    assert repr(found) == str(found)


def test_a_profile_shows_its_table() -> None:
    found = shardir.profile(repeated_sine, jnp.ones(1000), runs=2)
    assert repr(found) == abbreviate(str(found))
    assert repr(found).startswith("profile of repeated_sine: ")
    assert repr(found.runs[0]).startswith("<ProfiledRun of ")


def many_devices() -> shardir.Mesh:
    count = 2048
    with shardir.cpu_devices(count):
        return shardir.Mesh(np.array(shardir.devices()[::-1]), ("data",))


LARGE: dict[str, Callable[[], object]] = {
    "array": lambda: jnp.ones((1000, 1000)),
    "keys": lambda: shardir.random.split(shardir.random.key(0), 100_000),
    "module": lambda: shardir.make_ir(repeated_sine)(1.0),
    "function": lambda: shardir.make_ir(repeated_sine)(1.0).main,
    "block": lambda: shardir.make_ir(repeated_sine)(1.0).main.body,
    "lowered": lambda: shardir.jit(repeated_sine).lower(1.0),
    "compiled": lambda: shardir.jit(repeated_sine).lower(1.0).compile(),
    "constant": lambda: shardir.make_ir(lambda: jnp.asarray(np.arange(10_000) * 3))().main,
    "profile": lambda: shardir.profile(repeated_sine, jnp.ones(1000), runs=2),
    "emission": lambda: Emission.of(shardir.make_ir(repeated_sine)(1.0)),
    "mesh": many_devices,
    "mesh of the IR": lambda: Mesh("mesh", (("data", 100_000),), tuple(range(100_000))),
    "abstract mesh": lambda: AbstractMesh((1024, 64), ("data", "model")),
    "named sharding": lambda: NamedSharding(many_devices(), P("data")),
    "positional sharding": lambda: shardir.PositionalSharding(many_devices().devices),
    "set_mesh": lambda: shardir.set_mesh(None),
    "struct": lambda: ShapeDtypeStruct((1000, 1000), np.float32),
    "interface": lambda: lowered().compile().module.main.spmd,
    "collectives": lambda: [*map(check_is_collective, lowered().compile().collectives())],
    "table of collectives": lambda: lowered().compile().collectives(),
    "communication": lambda: lowered().compile().communication(),
    "cause": lambda: lowered().compile().explain(lowered().compile().collectives()[0]),
    "explanation": lambda: lowered().explain("x"),
    "difference": lambda: lowered().what_if("%x: f32[64, 8@model]"),
    "memory": lambda: lowered().compile().memory_analysis(),
    "function of jit": lambda: shardir.jit(repeated_sine),
    "story": lambda: Story(Path("s.ir"), (Section("x" * 100_000),)),
    "step": lambda: StoryStep(Path("s.ir"), 1, *[Section("x" * 100_000)] * 3),
    "config": lambda: shardir.config,
    "optimizer": lambda: shardir.optim.adam(0.1),
}


def check_is_collective(each: object) -> object:
    assert isinstance(each, Collective)
    return each


@pytest.mark.parametrize("name", LARGE)
def test_a_representation_is_bounded(name: str) -> None:
    text = repr(LARGE[name]())
    assert " object at 0x" not in text
    assert len(text.splitlines()) <= MAX_LINES + 2
    assert len(text) < 8000


def test_collectives_show_their_tables() -> None:
    compiled = lowered().compile()
    found = compiled.collectives()
    assert repr(found) == repr(compiled.communication())
    assert found == list(found)
    assert found._repr_html_() == compiled.communication()._repr_html_()


def test_dir_lists_public_names_alone() -> None:
    import shardir.backends.emission
    import shardir.ir.module

    listed = [name for name in dir(shardir) if not name.startswith("__")]
    assert listed == public_names("shardir")
    assert {"passes", "backends", "ir", "text", "_imports"}.isdisjoint(listed)
    assert [name for name in dir(shardir.numpy) if not name.startswith("__")] == [
        name for name in public_names("shardir.numpy") if not name.startswith("__")
    ]


def public_names(module: str) -> list[str]:
    names: list[str] = getattr(sys.modules[module], "__all__")  # noqa: B009  It is made lazily.
    return names
