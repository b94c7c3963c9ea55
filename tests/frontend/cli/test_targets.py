"""`shardir explain module:function` of functions of JAX and of shardir, on an abstract mesh."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from shardir.frontend.cli import targets
from shardir.passes import PASSES
from tests.frontend.cli.command import run

NEEDS_JAX = pytest.mark.needs("jax")

JAX = """\
import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P


def loss(params, x, y):
    h = jax.nn.gelu(x @ params["w1"])
    h = jax.lax.with_sharding_constraint(h, P("data", "model"))
    return jnp.mean((h @ params["w2"] - y) ** 2)


@jax.jit
def train_step(params, x, y):
    value, grads = jax.value_and_grad(loss)(params, x, y)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value


def example_args():
    def array(*shape):
        return jax.ShapeDtypeStruct(shape, jnp.float32)

    return {"w1": array(256, 512), "w2": array(512, 256)}, array(64, 256), array(64, 256)


def cut_args():
    params, x, y = example_args()
    rows = jax.sharding.NamedSharding(jax.sharding.get_abstract_mesh(), P("data"))
    return params, jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=rows), y


example_specs = {"w1": P(None, "model"), "w2": P("model")}, P("data"), None
no_specs = None
"""

OURS = """\
import numpy as np
import shardir.numpy as snp
from shardir.sharding import PartitionSpec as P


def total(x):
    return snp.sum(x)


example_args = np.zeros((32, 4), "float32")
example_specs = P("data")
"""


BARE = """\
import numpy as np
from jax.sharding import PartitionSpec as P


def f(x):
    return x


def wrong(x):
    return None + 1


one = np.zeros(4, "float32")
specs = P("dta")
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    Path("of_jax.py").write_text(JAX, encoding="utf-8")
    Path("of_ours.py").write_text(OURS, encoding="utf-8")
    Path("no_functions.py").write_text("size = 3\n", encoding="utf-8")
    Path("bare.py").write_text(BARE, encoding="utf-8")
    yield
    for name in ("bare", "of_jax", "of_ours"):
        sys.modules.pop(name, None)


@NEEDS_JAX
def test_the_communication_of_a_jax_program(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run("explain", "of_jax:train_step", "--mesh", "data=16,model=16") == 0
    out = capsys.readouterr().out
    assert "argument %params.w1: f32[256@-, 512@model]  of_jax.py:12" in out
    assert "constraint %h.1: f32[64@data, 512@model]    of_jax.py:8" in out
    assert "all-reduce over model  " in out
    assert "of_jax.py:9" in out


@NEEDS_JAX
def test_flags_apply_to_functions(capsys: pytest.CaptureFixture[str]) -> None:
    line = ["explain", "of_jax:loss", "--mesh", "data=4,model=2", "--value", "%h"]
    assert run(*line) == 0
    assert "data shards dimension 0" in capsys.readouterr().out


@NEEDS_JAX
def test_arguments_may_have_shardings(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--args", "of_jax:cut_args", "--specs", "no_specs"]
    assert run("explain", "of_jax:loss", "--mesh", "data=4,model=2", *words) == 0
    assert "argument %x: f32[64@data, 256@-]" in capsys.readouterr().out


def test_a_mesh_without_shardings_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "of_mesh.py").write_text(
        "import shardir as sd\n"
        "mesh = sd.sharding.AbstractMesh((2,), ('x',))\n"
        "example_args = (sd.ShapeDtypeStruct((8,), 'float32', sharding=sd.NamedSharding(mesh, "
        "sd.P('x'))),)\n"
        "double = sd.jit(lambda x: 2 * x)\n",
        encoding="utf-8",
    )
    assert run("explain", "of_mesh:double", "--mesh", "x=4") == 1
    assert capsys.readouterr().err == (
        "error: of_mesh:double has no shardings on --mesh x=4; its shardings are on x=2\n"
    )
    assert run("explain", "of_mesh:double", "--mesh", "x=2") == 0


def test_a_shardir_function_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("explain", "of_ours:total", "--mesh", "data=8") == 0
    assert "all-reduce over data" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        pytest.param(("of_jax:train_stop",), "of_jax has no 'train_stop'; did you mean "
                     "'train_step'?", marks=NEEDS_JAX),
        (("nowhere:step",), "there is no module 'nowhere' to import from this folder; is "
         "'nowhere:step' a file?"),
        (("of_ours:nothing",), "of_ours has no 'nothing'; it defines total"),
        (("no_functions:main",), "no_functions has no 'main'; it defines no function"),
        (("of_ours.py:total",), "there is no module 'of_ours.py' to import from this folder; to "
         "name a function of the file of_ours.py, write of_ours:total"),
        (("of_ours:total",), "example_specs need a mesh; pass one, as in --mesh data=16,model=16"),
        (("of_ours:total", "--mesh", "data"), "'data' is not a mesh; write it as data=16,model=16"),
        pytest.param(("bare:f",), "bare:f has no example arguments; define bare.example_args as a "
                     "tuple of its arguments, or name one with --args", marks=NEEDS_JAX),
        (("of_ours:example_specs",), "of_ours:example_specs is P('data',), "
         "which is not a function"),
        pytest.param(("bare:f", "--args", "one", "--mesh", "data=2"),
         "bare:f has no shardings on data=2; define bare.example_specs as the specs of its "
         "arguments, or name some with --specs", marks=NEEDS_JAX),
        pytest.param(("bare:wrong", "--args", "one", "--mesh", "data=2"),
         "bare:wrong cannot be traced: TypeError: unsupported operand type(s) for +: 'NoneType' "
         "and 'int'", marks=NEEDS_JAX),
        pytest.param(("bare:f", "--args", "one", "--specs", "specs", "--mesh", "data=2"),
         "P('dta',) names 'dta', which is not an axis of the mesh; its axes are "
         "'data'", marks=NEEDS_JAX),
        (("f.ir", "--mesh", "data=2"), "--mesh is for functions, and 'f.ir' is a file; name a "
         "function as mymodule:train_step"),
    ],
)  # fmt: skip
def test_errors_state_the_remedy(
    words: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("explain", *words) == 1
    assert capsys.readouterr().err.splitlines()[0] == f"error: {told}"


@pytest.mark.parametrize(
    ("program", "told"),
    [
        ("x = {}\ny = x['a\x1b']", "cannot be imported: KeyError: 'a\\x1b'\n --> broken.py:2:5"),
        ("import nowhere.else_", "cannot be imported: ModuleNotFoundError: No module named "
         "'nowhere'\n --> broken.py:1:1"),
        ("import brok", "cannot be imported: ModuleNotFoundError: No module named 'brok'\n --> "
         "broken.py:1:1"),
        ("def f(:", "cannot be imported: SyntaxError: invalid syntax (broken.py, line 1)"),
        ("def __getattr__(name):\n    return 1 / 0",
         ":f cannot be found: ZeroDivisionError: division by zero\n --> broken.py:2:12"),
    ],
)  # fmt: skip
def test_a_module_that_fails_is_an_error_with_its_line(
    program: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("broken.py").write_text(program, encoding="utf-8")
    try:
        assert run("explain", "broken:f") == 1
    finally:
        sys.modules.pop("broken", None)
    between = "" if told.startswith(":") else " "
    assert capsys.readouterr().err.startswith(f"error: broken{between}{told}")


def test_example_arguments_that_fail_are_an_error_with_their_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("broken.py").write_text(
        "def f(x):\n    return x\n\ndef args():\n    return 1 / 0\n", "utf-8"
    )
    try:
        assert run("explain", "broken:f", "--args", "args") == 1
    finally:
        sys.modules.pop("broken", None)
    assert capsys.readouterr().err.startswith(
        "error: the example arguments of broken:f cannot be made: ZeroDivisionError: division by "
        "zero\n --> broken.py:5:12\n"
    )


def test_a_module_of_neither_library_needs_no_jax(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(targets, "_has_jax", lambda: False)
    Path("neither.py").write_text("import numpy as np\n\ndef f(x):\n    return x + x\n\n"
                                  "example_args = np.zeros(4, 'float32')\n", "utf-8")  # fmt: skip
    try:
        assert run("opt", "neither:f") == 0
    finally:
        sys.modules.pop("neither", None)
    assert "add(%x, %x)" in capsys.readouterr().out


@NEEDS_JAX
def test_errors_show_lines_of_the_program_only(
    capfd: pytest.CaptureFixture[str],
) -> None:
    words = ["--args", "one", "--mesh", "data=2"]
    for asked in (["bare:wrong", *words], ["bare:f", *words, "--specs", "specs"]):
        command = [sys.executable, "-m", "shardir", "explain", *asked]
        assert subprocess.run(command, check=False).returncode == 1
    told = capfd.readouterr().err
    assert [line for line in told.splitlines() if "--> " in line] == [
        "  --> bare.py:10:12",
        "  --> bare.py:14:1",
    ]


CALLED = """\
import numpy as np
import shardir.numpy as snp
from shardir.sharding import PartitionSpec as P

WEIGHTS = snp.arange(4.0)


def total(x):
    return snp.sum(x * WEIGHTS)


example_args = np.ones((32, 4), "float32")


def example_specs():
    return P("data")


def wrong_specs():
    return 1 / 0


two_specs = [P("data"), P()]
"""


@pytest.fixture
def called() -> Iterator[None]:
    Path("called.py").write_text(CALLED, encoding="utf-8")
    yield
    sys.modules.pop("called", None)


@pytest.mark.usefixtures("called")
def test_opt_prints_the_program_of_a_function(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("opt", "called:total", "--mesh", "data=8", "--passes", "propagate") == 0
    assert (
        capsys.readouterr().out
        == """\
mesh @mesh = [data=8]

func @total(
  %x: f32[32@data, 4@-],
  %WEIGHTS: f32[4@-],
) -> (f32[]) {
  %0 = broadcast(%WEIGHTS, dims=[1]) : f32[32@data, 4@-]
  %1 = mul(%x, %0) : f32[32@data, 4@-]
  %2 = sum(%1, dims=[0, 1]) : f32[]
  return %2
}
"""
    )


@pytest.mark.usefixtures("called")
def test_commands_use_the_pipeline_of_jit_and_accept_default(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Path("called.py").open("a", encoding="utf-8") as file:
        file.write('import shardir as sd\n\ncut = sd.jit(total, passes="propagate,reshard")\n')
    words = ("called:cut", "--mesh", "data=8")
    assert run("opt", *words) == 0
    reduced = capsys.readouterr().out
    assert "reshard" in reduced
    assert "spmd" not in reduced
    assert run("opt", *words, "--passes", "default,dce") == 0
    assert "spmd func @total" in capsys.readouterr().out
    assert run("run", *words, "--passes", "default,cse") == 0
    assert capsys.readouterr().out == "result 0: f32[] on @mesh\n192.\n"
    assert run("test", *words, "--passes", "before:cse") == 1
    assert capsys.readouterr().err == (
        "error: before:cse is not a position: no earlier step is called 'cse'; write the step "
        "default before it: default,before:cse\n"
    )


@pytest.mark.usefixtures("called")
def test_run_takes_the_example_arguments_and_the_captured_arrays(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run("run", "called:total", "--mesh", "data=8") == 0
    assert capsys.readouterr().out == "result 0: f32[] on @mesh\n192.\n"
    np.save("x.npy", np.full((32, 4), 2, "float32"))
    assert run("run", "called:total", "x.npy", "--mesh", "data=8") == 0
    assert capsys.readouterr().out == "result 0: f32[] on @mesh\n384.\n"


@NEEDS_JAX
def test_functions_of_jax_are_run_and_tested(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("of_jax:loss", "--mesh", "data=2,model=2")
    assert run("opt", *words, "--passes", "propagate") == 0
    assert "mesh @mesh = [data=2, model=2]" in capsys.readouterr().out
    assert run("test", *words, "--passes", "propagate,reshard,partition") == 0
    assert capsys.readouterr().out == "of_jax:loss: propagate,reshard,partition: passed\n"
    assert run("run", *words) == 0
    assert capsys.readouterr().out.startswith("result 0: f32[] on @mesh\n")


WRONG_PASS = """\
from dataclasses import replace
from shardir.ir.operation import OPS
from shardir.passes import Pass


class Negates(Pass, name="negates"):
    def __call__(self, module):
        body = module.main.body
        ops = tuple(replace(op, spec=OPS["max"]) if op.name == "sum" else op for op in body.ops)
        return replace(
            module, functions=(replace(module.main, body=replace(body, ops=ops)),)
        )
"""


@pytest.mark.usefixtures("called")
def test_a_pipeline_that_changes_the_results_of_a_function(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("wrong.py").write_text(WRONG_PASS, encoding="utf-8")
    words = ("called:total", "--mesh", "data=8", "--passes", "negates", "--load", "wrong.py")
    try:
        assert run("test", *words) == 1
    finally:
        PASSES.pop("negates", None)
    assert capsys.readouterr().out == (
        "called:total: negates: failed\nresult 0 differs (by 0.984, and 0.0002 is allowed)\n"
    )


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ("run", "called:total", "--mesh", "data=8", "--specs", "wrong_specs"),
            "the specs of called:total cannot be made: ZeroDivisionError: division by zero\n"
            "  --> called.py:20:12\n"
            "   |\n"
            "20 | return 1 / 0\n"
            "   |        ^^^^^",
        ),
        (
            ("opt", "called:total", "--mesh", "data=8", "--from", "ir"),
            "--from is for files, and 'called:total' is a function",
        ),
        (
            ("test", "called:total", "--mesh", "data=8", "--update"),
            "--update is for story files, and 'called:total' is a function",
        ),
        (
            ("test", "f.ir", "--passes", "cse"),
            "--passes is for functions, and 'f.ir' is a file; its headings name the pipelines",
        ),
        (
            ("test", "f.ir", "--mesh", "data=8"),
            "--mesh is for functions, and 'f.ir' is a file; name a function as mymodule:train_step",
        ),
    ],
)
@pytest.mark.usefixtures("called")
def test_errors_of_functions(
    words: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*words) == 1
    assert capsys.readouterr().err == f"error: {told}\n"


@pytest.mark.usefixtures("called")
def test_specs_of_another_structure_are_shown_in_the_file_of_the_user() -> None:
    words = ("opt", "called:total", "--mesh", "data=8", "--specs", "two_specs")
    done = subprocess.run(
        [sys.executable, "-m", "shardir", *words], capture_output=True, text=True, check=False
    )
    assert done.stderr == (
        "error: two_specs has a tuple of 2, where the value has a tuple of 1; give one entry "
        "for the whole subtree, or the same containers\n"
        "  --> called.py:23:1\n"
        "   |\n"
        '23 | two_specs = [P("data"), P()]\n'
        "   | ^^^^^^^^^\n"
    )


@pytest.mark.usefixtures("called")
def test_profile_runs_a_function_on_devices(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("profile", "called:total", "--mesh", "data=4", "--runs", "1") == 0
    assert "called.py:9" in capsys.readouterr().out
    assert run("profile", "f.ir") == 1
    assert capsys.readouterr().err == (
        "error: 'f.ir' is not a function; name one as mymodule:train_step\n"
    )


@NEEDS_JAX
def test_profile_makes_arguments_of_shapes(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("profile", "of_jax:loss", "--mesh", "data=2,model=2", "--runs", "1") == 0
    assert "of_jax.py:9" in capsys.readouterr().out


@pytest.mark.usefixtures("called")
def test_draw_prints_or_writes_the_graph(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("draw", "called:total", "--mesh", "data=8", "--passes", "default")
    assert run(*words) == 0
    text = capsys.readouterr().out
    assert text.startswith("digraph {\n")
    assert "all-reduce" in text
    assert run(*words, "-o", "total.dot") == 0
    assert capsys.readouterr().out == "total.dot\n"
    assert Path("total.dot").read_text(encoding="utf-8") == text
    assert run(*words, "-o", "total.png") == 1
    assert capsys.readouterr().err == (
        "error: cannot draw into 'total.png'; name a .dot or .svg file\n"
    )
