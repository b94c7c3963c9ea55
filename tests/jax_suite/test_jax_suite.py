"""The runner of JAX's tests, on a small test file of our own."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.jax_suite.name_lists import counted, outdated, unexplained

ROOT = Path(__file__).parents[2]
FILE = """
from absl.testing import absltest, parameterized
import jax
import jax.numpy as jnp
from jax._src import core
from jax._src import test_util as jtu

jax.config.parse_flags_with_absl()
WANTED = jax.no_such_function(core.nothing)

class SmallTest(jtu.JaxTestCase):
  @parameterized.parameters([1, 2])
  def test_sum(self, n):
    self._CompileAndCheck(lambda x: jnp.sum(x) * n, lambda: [jnp.ones(n)])

  @jax.numpy_rank_promotion("raise")
  def test_wide(self):
    with jax.enable_x64(True):
      self.assertEqual(jnp.arange(2).dtype, "int64")

  def test_wording(self):
    with self.assertRaisesRegex(TypeError, "add got incompatible shapes for broadcasting"):
      jnp.ones(2) + jnp.ones(3)

  def test_differs(self):
    self.assertEqual(type(jnp.ones(2)).__module__, "jaxlib._jax")

  def test_internals(self):
    self.assertIn("stablehlo", jax.jit(jnp.sin).lower(1.0).as_text())
"""


@pytest.mark.long
def test_counted_and_passing_tests(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "small_test.py").write_text(FILE, "utf-8")
    command = [sys.executable, "-m", "tests.jax_suite", str(tmp_path), "small"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    lines = ran.stdout.splitlines()
    assert lines[0] == "small: 4 of 5", ran.stderr
    assert lines[1].startswith("     1  SmallTest.test_differs: AssertionError: ")
    assert (len(lines), ran.returncode) == (2, 1)
    strict = subprocess.run(
        [*command, "--wording", "--only", "wording"], cwd=ROOT, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert strict.stdout.startswith("small: 0 of 1")


OLD = """
from absl.testing import absltest, parameterized
import jax
import jax.numpy as jnp
from jax._src import sharding_specs as specs
from jax._src import test_util as jtu

class PythonPmapTest(jtu.JaxTestCase):
  @parameterized.parameters([(specs.Chunked([n]),) for n in range(9)])
  def testOfAbsentNames(self, spec):
    self.fail()

  def testNestedBasic(self):
    f = jax.pmap(jax.pmap(lambda x: jax.lax.psum(x, ("i", "j")), "i"), "j")
    self.assertAllClose(f(jnp.ones((2, 2))), jnp.full((2, 2), 4.))
    self.assertIsNone(jnp.newaxis)
"""


def test_nested_pmap_of_an_old_checkout(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "pmap_test.py").write_text(OLD, "utf-8")
    command = [sys.executable, "-m", "tests.jax_suite", str(tmp_path), "nested_pmap"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.stdout == "nested_pmap: 1 of 1\n", ran.stderr
    assert ran.returncode == 0


def test_name_lists(tmp_path: Path) -> None:
    path = tmp_path / "array_test.py"
    path.write_text(
        "  def test_array_delete(\n  def test_pspec_tuple(\n  def test_pspec(\n", "utf-8"
    )
    counts = counted("array", path)
    assert counts is not None
    assert counts("ShardingTest.test_pspec_tuple")
    assert not counts("ShardingTest.test_pspec")
    assert counted("no_such_file", path) is None
    told = [("A.test_a*", "why"), ("B.test_b", "why"), ("C.test_c", "why")]
    assert unexplained(["A.test_a3", "D.test_d"], told) == ["D.test_d"]
    assert outdated(["A.test_a1"], {"A.test_a3": "", "B.test_b": ""}, told) == [
        "A.test_a1", "C.test_c",
    ]  # fmt: skip


def test_tests_have_a_time_limit(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    slow = FILE.replace("self.assertEqual(jnp.arange(2).dtype", "import time; time.sleep(9)  # ")
    (tmp_path / "tests" / "small_test.py").write_text(slow, "utf-8")
    command = [sys.executable, "-m", "tests.jax_suite", str(tmp_path), "small", "--numpy"]
    command += ["--all", "--only", "wide", "--limit", "1"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.stdout.splitlines() == [
        "small: 0 of 1", "     1  SmallTest.test_wide: TimeLimit: it takes longer than 1 s",
    ]  # fmt: skip
