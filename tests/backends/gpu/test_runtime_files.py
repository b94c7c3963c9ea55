"""The runtime files, declaration and data files that are written beside an emitted program."""

import ast
import io
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import shardir as sd
from shardir.backends import emission as emissions
from shardir.backends.emission import Emission
from shardir.backends.gpu.runtime_files import (
    data_files,
    file_names,
    program_declaration,
    runtime_files,
)
from shardir.backends.gpu.vendored.program_description import Program, Tensor
from shardir.frontend.dispatch.stages.emission import make_emission
from shardir.text.parser import parse

TEXT = """\
mesh @m = [x=2, y=4]

func @f(
  %a: f32[4@x, 3],
  %b: bf16[8@y, 2],
) -> (f32[4, 3]) {
  %c = add(%a, %a) : f32[4, 3]
  return %c
}
"""


def emission(text: str = TEXT, samples: bool = False) -> Emission:
    return make_emission(parse(text), "plain", samples=samples)


@pytest.fixture(autouse=True)
def plain_target(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register a target without passes."""
    target = SimpleNamespace(pipeline="", emits_pipelines=False)
    monkeypatch.setitem(emissions.TARGETS, "plain", target)


def test_runtime_files_do_not_import_shardir() -> None:
    written = runtime_files()
    assert "shardir_runtime/comm.py" in written
    for text in written.values():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom):
                assert not (node.module or "").startswith("shardir.")
            elif isinstance(node, ast.Import):
                assert all(alias.name.partition(".")[0] != "shardir" for alias in node.names)


def execute_declaration(text: str) -> Any:
    names: dict[str, Any] = {"Program": Program, "Tensor": Tensor, "__file__": "here.py"}
    exec(text, names)
    return names["PROGRAM"]


def test_the_declaration_states_the_sharding_of_arguments() -> None:
    text = program_declaration(emission())
    assert '        Tensor("a", "f32", (4, 3), (("x",), ())),\n' in text
    program = execute_declaration(text)

    assert program.mesh == {"x": 2, "y": 4}
    assert program.arguments == (
        Tensor("a", "f32", (4, 3), (("x",), ())),
        Tensor("b", "bf16", (8, 2), (("y",), ())),
    )
    assert [each.shard_shape(program.devices) for each in program.arguments] == [(2, 3), (2, 2)]
    assert program.title == "f"
    assert program.file == "here.py"


def test_the_declaration_lists_the_groups_of_collectives() -> None:
    text = TEXT.replace("add(%a, %a) : f32[4, 3]", "sum(%a, dims=[0]) : f32[3]").replace(
        "-> (f32[4, 3])", "-> (f32[3])"
    )
    assert execute_declaration(program_declaration(emission(text))).groups == (("x",),)


def test_labels_with_quotes_are_preserved() -> None:
    step = sd.jit(lambda params: params['it"s'] * 2)
    given = step.lower({'it"s': np.zeros(3, np.float32)}).emission("plain")
    (argument,) = execute_declaration(program_declaration(given)).arguments
    assert argument.label == 'params.it"s'
    assert argument.name == "params.it_s"


def test_arguments_with_equal_file_names_are_numbered() -> None:
    step = sd.jit(lambda params: params["a b"] + params["a:b"])
    zeros = np.zeros(3, np.float32)
    given = step.lower({"a b": zeros, "a:b": zeros}).emission("plain")
    assert file_names(given.arguments) == ["params.a_b", "params.a_b_2"]


def test_samples_are_written_as_npy_files() -> None:
    given = emission(samples=True)
    written = data_files(given)

    assert list(written) == [
        "selftest/arguments/a.npy",
        "selftest/arguments/b.npy",
        "selftest/results/result.npy",
    ]
    a = np.load(io.BytesIO(written["selftest/arguments/a.npy"]))
    np.testing.assert_array_equal(
        np.load(io.BytesIO(written["selftest/results/result.npy"])), a * 2
    )
    b = np.load(io.BytesIO(written["selftest/arguments/b.npy"]))
    assert given.samples is not None
    assert b.view(ml_dtypes.bfloat16).tobytes() == given.samples.arguments[1].tobytes()


def test_captured_arrays_are_written_as_values() -> None:
    table = sd.numpy.arange(3.0)
    given = sd.jit(lambda x: x * table).lower(np.zeros(3, np.float32)).emission("plain")
    last = execute_declaration(program_declaration(given)).arguments[-1]

    assert last.value == f"values/{last.name}.npy"
    array = np.load(io.BytesIO(data_files(given)[last.value]))
    np.testing.assert_array_equal(array, np.arange(3.0, dtype=np.float32))
    assert len(execute_declaration(program_declaration(given)).passed_arguments) == 1


def test_programs_can_be_emitted_without_torch(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "sys.modules['torch'] = sys.modules['triton'] = None\n"
        "import numpy as np, shardir as sd\n"
        "step = sd.jit(lambda x: sd.nn.softmax(x @ x))\n"
        "step.lower(np.zeros((4, 4), 'float32')).emit('gpu', sys.argv[1])\n"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True, timeout=120)
    assert (tmp_path / "lambda_program.py").exists()
