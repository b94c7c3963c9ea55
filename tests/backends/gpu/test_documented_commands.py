"""The commands that docs/gpu.md shows print the documented output.

`--long` includes the commands of launchers.
"""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[3] / "docs" / "gpu.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
LAUNCHERS = {
    "torchrun": [sys.executable, "-m", "torch.distributed.run"],
    "mpiexec": [str(Path(sys.executable).parent / "mpiexec")],
}
DIRECT_COMMANDS = {"shardir": [sys.executable, "-m", "shardir"], "python": [sys.executable]}


def output_of(command: str, folder: Path) -> str:
    """Run a command and return its output."""
    first, *words = shlex.split(command)
    words = [sys.executable if word == "python" else word for word in words]
    completed = subprocess.run(
        [*(DIRECT_COMMANDS | LAUNCHERS)[first], *words],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert completed.returncode == 0, f"{command}\n{completed.stdout}{completed.stderr}"
    return completed.stdout


@pytest.mark.needs("torch", "triton")
def test_documented_commands_print_the_documented_output(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    program = next(body for language, body in BLOCKS if language == "python")
    (tmp_path / "train.py").write_text(program, "utf-8")
    commands = [line for language, body in BLOCKS if language == "sh" for line in body.splitlines()]
    assert len(commands) == 5
    outputs = {}
    for command in commands:
        if command.split()[0] in DIRECT_COMMANDS or request.config.getoption("--long"):
            outputs[command] = output_of(command, tmp_path)

    documented = next(body for language, body in BLOCKS if body.startswith("ok "))
    for command, output in outputs.items():
        if "python" in command and "--selftest" in command:
            assert output.startswith("ok    result.0.w1: f32[16, 32@model]: differs by ")
            assert output.partition(":")[0] == documented.partition(":")[0]
        elif "--bench" in command:
            assert re.match(r"5 runs on 4 devices: median [\d.]+ ms, fastest [\d.]+ ms", output)


def test_the_page_documents_every_option() -> None:
    from shardir.backends.gpu.vendored.command import _parser
    from shardir.backends.gpu.vendored.program_description import Program

    known = set(re.findall(r"--[a-z]+", _parser(Program("p", {}, (), ())).format_help()))
    table = PAGE[PAGE.index("| option |") : PAGE.index("The names are those of the user's program")]
    assert known - {"--help"} == set(re.findall(r"--[a-z]+", table))
