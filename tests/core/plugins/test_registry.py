"""Passes, targets, backends, operations and rules of installed packages and of loaded files."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardir.backends.base import get_backend
from shardir.backends.emission import TARGETS, get_target
from shardir.errors import ParseError
from shardir.ir.builder import Builder
from shardir.ir.operation import OPS
from shardir.passes import PASSES, Pipeline, Propagate
from shardir.plugins import entry_points, registry
from shardir.plugins.entry_points import PluginError
from shardir.plugins.registry import load_plugin
from shardir.text.parser import parse
from shardir.text.printer import Printer
from tests.frontend.cli.command import run
from tests.registries import restored_registries

PASS = """\
from shardir.passes import Pass


class {kind}(Pass, name="{name}"):
    \"\"\"Return the module unchanged.\"\"\"

    def __call__(self, module):
        return module
"""
TARGET = """\
from shardir.backends.emission import TARGETS, Target


class Paper(Target):
    name = "paper"

    def emit(self, emission, options):
        return {"program.txt": str(emission.module)}


TARGET = Paper()
"""
BACKEND = """\
from shardir.backends.numpy import NumPyBackend


class Slow(NumPyBackend):
    name = "slow"


BACKEND = Slow()
"""
OPERATION = """\
import numpy as np

from shardir.ops.elementwise.elementwise import define_unary
from shardir.ops.type_checks import FLOAT

double = define_unary("double", FLOAT, lambda x: x + x)
"""
PROGRAM = """\
func @f(
  %a: f32[4],
) -> (f32[4]) {
  %b = double(%a) : f32[4]
  return %b
}
"""

OPAQUE = """\
mesh @m = [a=2, b=2]

func @f(
  %x: f32[8@a, 16],
  %y: f32[16, 4@b],
) -> (f32[8, 4]) {
  %z = opaque(%x, %y, operation="stablehlo.custom_call @mine", \
head="stablehlo.custom_call @mine(%, %)", attributes="", \
types=": (tensor<8x16xf32>, tensor<16x4xf32>) -> tensor<8x4xf32>") : f32[8, 4]
  return %z
}
"""


@pytest.fixture(autouse=True)
def registries() -> Iterator[None]:
    """Remove the entries and modules that a test registers."""
    modules = set(sys.modules)
    with restored_registries():
        yield
    for name in set(sys.modules) - modules:
        if name.startswith(("plugin_", "_shardir_plugin")):
            del sys.modules[name]
    registry._loaded_plugins.clear()
    clear_caches()


def clear_caches() -> None:
    entry_points._all_entry_points.cache_clear()
    registry.load_entry_points.cache_clear()
    registry.load_environment_plugins.cache_clear()


class Packages:
    """Installed packages, each with one module."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def install(self, package: str, module: str, text: str, *points: tuple[str, str, str]) -> None:
        (self.folder / f"{module}.py").write_text(text, encoding="utf-8")
        info = self.folder / f"{package.replace('-', '_')}-0.1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {package}\nVersion: 0.1\n", encoding="utf-8"
        )
        lines = [f"[{group}]\n{name} = {value}\n" for group, name, value in points]
        (info / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")
        clear_caches()


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Packages:
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    return Packages(folder)


def message(plugin: str) -> str:
    with pytest.raises(PluginError) as caught:
        load_plugin(plugin)
    return str(caught.value)


def message_of_pass(name: str) -> str:
    with pytest.raises(PluginError) as caught:
        Pipeline.parse(name)
    return str(caught.value)


def test_a_pass_of_a_package_is_imported_when_it_is_named(packages: Packages) -> None:
    packages.install(
        "my-passes",
        "plugin_a",
        PASS.format(kind="Idle", name="idle"),
        ("shardir.passes", "idle", "plugin_a:Idle"),
    )
    Pipeline.parse("cse,dce")
    assert "plugin_a" not in sys.modules
    assert str(Pipeline.parse("idle,cse")) == "idle,cse"
    assert PASSES.origin("idle") == "package my-passes 0.1"


def test_the_list_of_passes_names_the_origin(
    packages: Packages, capsys: pytest.CaptureFixture[str]
) -> None:
    packages.install(
        "my-passes",
        "plugin_a",
        PASS.format(kind="Idle", name="idle"),
        ("shardir.passes", "idle", "plugin_a:Idle"),
    )
    assert run("passes") == 0
    lines = capsys.readouterr().out.splitlines()
    assert "idle: Return the module unchanged. [package my-passes 0.1]" in lines
    assert sum("[" in line for line in lines if not line.startswith(" ")) == 1


def test_a_target_of_a_package(packages: Packages) -> None:
    packages.install("paper", "plugin_t", TARGET, ("shardir.targets", "paper", "plugin_t:TARGET"))
    assert get_target("paper").name == "paper"
    assert TARGETS.names() == ["gpu", "ipu", "paper"]


def test_a_backend_of_a_package(packages: Packages) -> None:
    packages.install("slow", "plugin_b", BACKEND, ("shardir.backends", "slow", "plugin_b:BACKEND"))
    assert get_backend("slow").name == "slow"


def test_an_operation_of_a_package_is_known_to_the_parser_and_to_builders(
    packages: Packages,
) -> None:
    packages.install(
        "double", "plugin_o", OPERATION, ("shardir.operations", "double", "plugin_o:double")
    )
    module = parse(PROGRAM)
    assert module.main.body.ops[0].spec is OPS["double"]
    assert Builder().double(module.main.body.params[0]).type == module.main.body.params[0].type


def test_a_sharding_rule_of_a_package(packages: Packages) -> None:
    packages.install(
        "mine",
        "plugin_r",
        "import shardir\nMINE = shardir.sharding_rule('i j, j k -> i k', reduction='j')\n",
        ("shardir.sharding_rules", "mine", "plugin_r:MINE"),
    )
    after = Propagate()(parse(OPAQUE))
    result = after.main.body.returns[0]
    assert Printer(after.meshes).sharded_type(result.type, result.sharding) == "f32[8@a, 4@b]"


def test_a_package_that_cannot_be_imported(packages: Packages) -> None:
    packages.install(
        "broken", "plugin_c", "import nothing_of_this_name\n", ("shardir.passes", "c", "plugin_c:C")
    )
    assert message_of_pass("c") == (
        "package broken 0.1 cannot be loaded: its entry point c = 'plugin_c:C' of shardir.passes "
        "raised ModuleNotFoundError: No module named 'nothing_of_this_name'"
    )


def test_an_entry_point_whose_object_does_not_exist(packages: Packages) -> None:
    packages.install(
        "broken",
        "plugin_c",
        PASS.format(kind="Idle", name="idle"),
        ("shardir.passes", "idle", "plugin_c:Idel"),
    )
    assert message_of_pass("idle") == (
        "package broken 0.1 cannot be loaded: its entry point idle = 'plugin_c:Idel' of "
        "shardir.passes names no object: plugin_c has no 'Idel'; did you mean 'Idle'?"
    )


def test_an_entry_point_of_the_wrong_type(packages: Packages) -> None:
    packages.install("odd", "plugin_d", "ODD = 3\n", ("shardir.passes", "odd", "plugin_d:ODD"))
    assert message_of_pass("odd") == (
        "the entry point odd = 'plugin_d:ODD' of package odd 0.1 is 3, and a pass is a subclass of "
        "shardir.passes.Pass"
    )


NO_DEFINITION = "and an operation is a result of shardir.ir.operation.define_op"
FAILURE = "package even 0.1 cannot be loaded: its entry point even = "


@pytest.mark.parametrize(
    ("module", "value", "message"),
    [
        ("EVEN = 4", "plugin_e:EVEN", f"is 4, {NO_DEFINITION}"),
        ("def even(x): ...", "plugin_e:even", f"is the function even, {NO_DEFINITION}"),
        ("", "plugin_e", f"is the module plugin_e, {NO_DEFINITION}"),
        (
            "from shardir.ir.operation import OpSpec\nEVEN = OpSpec('even', type=lambda x: x)",
            "plugin_e:EVEN",
            f"is <op even>, {NO_DEFINITION}",
        ),
        (
            "EVEN: object",  # An annotation binds no name.
            "plugin_e:EVEN",
            f"{FAILURE}'plugin_e:EVEN' of shardir.operations names no object: plugin_e has no "
            "'EVEN'; define it there, or name another object",
        ),
        (
            "from shardir.extend import operation_function\n"
            "EVEN = operation_function('even', 'whether x is even')",
            "plugin_e:EVEN",
            f"{FAILURE}'plugin_e:EVEN' of shardir.operations raised PluginError: no operation is "
            "called 'even'; define it before with define_op",
        ),
        (
            "",
            ":EVEN",
            f"{FAILURE}':EVEN' of shardir.operations names no module; write module:name",
        ),
    ],
)
def test_an_entry_point_of_an_operation_that_is_not_its_definition(
    packages: Packages, module: str, value: str, message: str
) -> None:
    packages.install("even", "plugin_e", module, ("shardir.operations", "even", value))
    with pytest.raises(PluginError) as caught:
        OPS["even"]
    if not message.startswith(FAILURE):
        message = f"the entry point even = {value!r} of package even 0.1 {message}"
    assert str(caught.value) == message


def test_a_type_rule_with_other_parameters(packages: Packages) -> None:
    module = "from shardir.extend import define_op\ndefine_op('double', type=lambda x: x)\n"
    packages.install("types", "plugin_t", module)
    load_plugin("plugin_t")
    with pytest.raises(ParseError) as caught:
        parse(PROGRAM)
    assert str(caught.value).partition("\n")[0] == (
        "the rule 'type' of operation 'double' raised TypeError: <lambda>() got an unexpected "
        "keyword argument 'result'"
    )


def test_an_entry_point_with_another_name_than_its_pass(packages: Packages) -> None:
    packages.install(
        "odd",
        "plugin_d",
        PASS.format(kind="Idle", name="idle"),
        ("shardir.passes", "sleep", "plugin_d:Idle"),
    )
    assert message_of_pass("sleep") == (
        "the entry point sleep = 'plugin_d:Idle' of package odd 0.1 is the pass 'idle'; give both "
        "the same name"
    )


def test_two_packages_with_one_name(packages: Packages) -> None:
    for package, module in (("one", "plugin_one"), ("two", "plugin_two")):
        packages.install(
            package,
            module,
            PASS.format(kind="Idle", name="idle"),
            ("shardir.passes", "idle", f"{module}:Idle"),
        )
    said = message_of_pass("idle")
    assert said in (
        "package one 0.1 and package two 0.1 both define the pass 'idle'; uninstall one of them",
        "package two 0.1 and package one 0.1 both define the pass 'idle'; uninstall one of them",
    )


def test_a_package_with_the_name_of_a_pass_of_shardir(packages: Packages) -> None:
    packages.install(
        "cse",
        "plugin_d",
        PASS.format(kind="C", name="cse"),
        ("shardir.passes", "cse", "plugin_d:C"),
    )
    with pytest.raises(PluginError) as caught:
        PASSES.names()
    assert str(caught.value) == (
        "package cse 0.1 defines the pass 'cse', which shardir defines already; uninstall the "
        "package, or give its entry point another name"
    )


def test_a_loaded_file(tmp_path: Path) -> None:
    file = tmp_path / "mypass.py"
    file.write_text(PASS.format(kind="Idle", name="idle"), encoding="utf-8")
    load_plugin(str(file))
    load_plugin(str(file))
    assert str(Pipeline.parse("idle")) == "idle"
    assert PASSES.origin("idle") == f"file {file}"


def test_a_loaded_file_that_defines_a_known_pass(tmp_path: Path) -> None:
    file = tmp_path / "mypass.py"
    file.write_text(PASS.format(kind="C", name="cse"), encoding="utf-8")
    assert message(str(file)) == (
        f"cannot load {str(file)!r}: PluginError: file {file} defines the pass 'cse', which "
        "shardir defines already; give it another name"
    )


def test_a_loaded_file_that_raises(tmp_path: Path) -> None:
    file = tmp_path / "mypass.py"
    file.write_text("1 / 0\n", encoding="utf-8")
    assert message(str(file)) == f"cannot load {str(file)!r}: ZeroDivisionError: division by zero"


def test_what_cannot_be_loaded(tmp_path: Path) -> None:
    here = f"the folder {os.getcwd()!r} has no such file"
    assert message("nofile.py") == f"cannot load 'nofile.py': {here}"
    assert message("no/file.py") == (
        f"cannot load 'no/file.py': there is no folder {os.path.abspath('no')!r}"
    )
    folder = tmp_path / "folder.py"
    folder.mkdir()
    assert message(str(folder)) == f"cannot load {str(folder)!r}: it is a folder, not a file"
    assert message("no/file") == (
        "cannot load 'no/file': it is not a file; name a file such as mypass.py, a module, or "
        "module:name"
    )
    assert message("nothing_here") == (
        "cannot load 'nothing_here': ModuleNotFoundError: No module named 'nothing_here'"
    )
    assert message("math:pi") == (
        "cannot load 'math:pi': it is 3.141592653589793; name a pass, an operation, a target or a "
        "backend"
    )


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("simplify", "the function simplify"),
        ("Simplify", "the class Simplify"),
        ("instance", "an object of type Simplify"),
    ],
)
def test_what_cannot_be_loaded_has_no_address(packages: Packages, name: str, kind: str) -> None:
    (packages.folder / "plugin_s.py").write_text(
        "def simplify(module): return module\nclass Simplify: pass\ninstance = Simplify()\n",
        encoding="utf-8",
    )
    assert message(f"plugin_s:{name}") == (
        f"cannot load 'plugin_s:{name}': it is {kind}; name a pass, an operation, a target or a "
        "backend"
    )


def test_an_object_of_a_module_is_registered(packages: Packages) -> None:
    (packages.folder / "plugin_t.py").write_text(TARGET, encoding="utf-8")
    load_plugin("plugin_t:TARGET")
    assert get_target("paper").name == "paper"
    assert TARGETS.origin("paper") == "module plugin_t"


def test_every_command_has_the_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mypass.py").write_text(PASS.format(kind="Idle", name="idle"), encoding="utf-8")
    Path("f.ir").write_text(PROGRAM.replace("double", "exp"), encoding="utf-8")
    assert run("opt", "f.ir", "--passes", "idle", "--load", "mypass.py") == 0
    assert "exp(%a)" in capsys.readouterr().out
    for command in ("opt", "run", "explain", "emit", "draw", "profile", "passes", "test"):
        assert run(command, "--help") == 0
        assert "--load <list[str]>" in capsys.readouterr().out


def test_the_environment_names_files(tmp_path: Path) -> None:
    file = tmp_path / "mypass.py"
    file.write_text(PASS.format(kind="Idle", name="idle"), encoding="utf-8")
    code = "from shardir.passes import Pipeline; print(Pipeline.parse('idle'))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"SHARDIR_LOAD": str(file), "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "idle\n"


def test_a_file_that_the_environment_names_in_vain_is_an_error_of_every_pipeline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("f.ir").write_text(PROGRAM.replace("double", "exp"), encoding="utf-8")
    monkeypatch.setenv("SHARDIR_LOAD", "missing.py")
    assert run("opt", "f.ir", "--passes", "dce") == 1
    assert capsys.readouterr() == (
        "",
        f"error: cannot load 'missing.py': the folder {str(tmp_path)!r} has no such file\n"
        "named in the environment variable SHARDIR_LOAD\n",
    )


def test_start_up_reads_no_entry_points() -> None:
    code = """
import importlib.metadata, sys
def distributions(*_): raise SystemExit("read")
importlib.metadata.distributions = distributions
import shardir, shardir.passes, shardir.backends.emission
import shardir.cli
sys.argv = ["shardir", "--help"]
shardir.cli.main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Usage: shardir" in done.stdout
