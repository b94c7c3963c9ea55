"""Rules of other packages for CPUs: machine code instead of the NumPy function of an operation."""

import subprocess
import sys
from pathlib import Path

OPERATION = """\
import numpy as np
from shardir.extend import FLOAT, define_unary, elementwise_function

define_unary("halve", FLOAT, lambda x: x * np.float32(0.5))
halve = elementwise_function("halve", "x / 2")
"""
RULE = """\
from shardir.extend import cpu_rule

@cpu_rule("halve")
def lower(a):
    return a.values[0] * {factor}
"""
PROGRAM = """\
import shardir as sd
import shardir.numpy as snp
from halve import halve

x = snp.arange(3.0)

def show():
    compiled = sd.jit(lambda x: halve(x) + 1).lower(x).compile()
    print(compiled(x), "numpy" in compiled.as_text("schedule"))

show()
import halve_cpu
show()
"""


def run(folder: Path, program: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


def test_a_rule_replaces_the_function_of_numpy_also_after_a_compilation(tmp_path: Path) -> None:
    (tmp_path / "halve.py").write_text(OPERATION, encoding="utf-8")
    (tmp_path / "halve_cpu.py").write_text(RULE.format(factor=0.5), encoding="utf-8")
    assert run(tmp_path, PROGRAM) == ["[1.  1.5 2. ] True", "[1.  1.5 2. ] False"]


def test_code_on_disk_depends_on_the_file_of_the_rule(tmp_path: Path) -> None:
    (tmp_path / "halve.py").write_text(OPERATION, encoding="utf-8")
    native = PROGRAM.replace("import shardir as sd\n", "import shardir as sd\nimport halve_cpu\n")
    for factor, first in ((0.5, "[1.  1.5 2. ] False"), (0.25, "[1.   1.25 1.5 ] False")):
        (tmp_path / "halve_cpu.py").write_text(RULE.format(factor=factor), encoding="utf-8")
        assert run(tmp_path, native)[0] == first
