"""A program that uses its own poplar::Engine, as the Poplar tutorials do."""

import subprocess
from pathlib import Path

from shardir.backends.ipu.host_model import build_executable
from tests.backends.ipu.host_model.compiled_programs import PROGRAMS

EXPECTED_STDOUT = """\
v: 1 2 15 50 3 4 16 51
v: 5 6 30 100 7 8 31 101
v: 1 2 45 150 3 4 46 151
maximum: 1 2 3
minimum: 1 2 -1
divided: -1 -1 -2.14748e+09
remainder: 7 -7 0
shifted: 14 -14 0
order read: 2 1 0
"""
"""Each step prints the shards of both replicas; then follow results that Poplar leaves
unspecified."""

EXPECTED_STDERR = """\
v[0]: 1 2 15 50
v[1]: 3 4 16 51
v[0]: 5 6 30 100
v[1]: 7 8 31 101
v[0]: 1 2 45 150
v[1]: 3 4 46 151
"""


def test_an_engine_streams_accesses_tensors_and_prints(tmp_path: Path) -> None:
    program = tmp_path / "engine"
    build_executable((PROGRAMS / "engine.cpp").read_text("utf-8"), program)
    done = subprocess.run([program], capture_output=True, text=True, check=True)
    assert done.stdout == EXPECTED_STDOUT
    assert done.stderr == EXPECTED_STDERR
