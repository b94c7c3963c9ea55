"""The JAX shim: which modules import shardir under JAX's name, and errors of missing names."""

import builtins
import subprocess
import sys
import threading
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import shardir as sd
import shardir.numpy as snp
from shardir.cli import main
from shardir.frontend.config import config
from shardir.frontend.errors import ArgumentError, SettingError
from shardir.interop.in_place_of_jax import (
    Program,
    UncoveredImport,
    UncoveredName,
    UncoveredSetting,
    run_script,
    shardir_as_jax,
)
from shardir.interop.jax_shim.module_facade import look_up_jax
from shardir.interop.jax_shim.renamed import (
    CONTAINER_MODULES,
    IGNORED_SETTING_CONTEXTS,
    MOVED_NAMES,
    NO_OP_FUNCTIONS,
)
from shardir.interop.jax_shim.suggestions import ALTERNATIVES

ROOT = Path(__file__).parents[2]


def is_ours(jax: Any) -> bool:
    return bool(jax.jit is sd.jit)


def import_here() -> Any:
    import jax

    return jax


def test_a_block_affects_only_imports_of_its_module() -> None:
    before = builtins.__import__
    with shardir_as_jax():
        import jax
        import jax.numpy as jnp

        mine = import_here()
        elsewhere: dict[str, Any] = {}
        exec("import jax", elsewhere)
        seen: list[Any] = []
        thread = threading.Thread(target=lambda: seen.append(import_here()))
        thread.start()
        thread.join()
    assert is_ours(jax)
    assert is_ours(mine)
    assert jnp.sin is not None
    assert float(jnp.sum(jnp.arange(4))) == 6
    assert not is_ours(elsewhere["jax"])
    assert not is_ours(seen[0])
    assert not is_ours(import_here())
    assert not is_ours(sys.modules["jax"])
    assert builtins.__import__ is before
    assert repr(jax) == "<module 'jax' by shardir>"


def test_nested_blocks_and_errors() -> None:
    before = builtins.__import__
    with shardir_as_jax(), shardir_as_jax():
        assert is_ours(import_here())
    with pytest.raises(ZeroDivisionError), shardir_as_jax():
        _ = 1 // 0
    assert builtins.__import__ is before
    assert not is_ours(import_here())


def test_modules_of_a_program_are_loaded_separately(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "small_package_c1").mkdir()
    (tmp_path / "small_package_c1" / "__init__.py").write_text(
        "from small_package_c1.inner import jax\nfrom . import inner\n", "utf-8"
    )
    (tmp_path / "small_package_c1" / "inner.py").write_text(
        "import jax\n\ndef later():\n    import jax\n    from . import other\n"
        "    return jax, other.jax\n",
        "utf-8",
    )
    (tmp_path / "small_package_c1" / "other.py").write_text("import jax\n", "utf-8")
    theirs = import_module("small_package_c1")
    made: dict[str, Any] = {}
    with shardir_as_jax("small_package_c1"):
        exec("import small_package_c1 as ours", globals(), made)
    ours = made["ours"]
    assert is_ours(ours.jax)
    assert all(map(is_ours, ours.inner.later()))
    assert not is_ours(theirs.jax)
    assert sys.modules["small_package_c1"] is theirs
    assert "small_package_c1.other" not in sys.modules


def test_settings_are_restored_after_the_block() -> None:
    with shardir_as_jax(num_cpu_devices=3):
        import jax

        assert jax.device_count() == 3
        jax.config.update("jax_num_cpu_devices", 5)
        jax.config.update("jax_enable_x64", True)
        assert jax.device_count() == 5
        assert jax.config.jax_enable_x64
        assert jax.config.read("jax_enable_x64")
        assert jax.config.x64_enabled
        jax.config.update("jax_platforms", "tpu,cpu")
        assert jax.default_backend() == "tpu"
        jax.config.update("jax_platform_name", "cuda")
        assert jax.devices("gpu")[0].platform == "gpu"
    assert (config.num_cpu_devices, config.enable_x64, config.shown_platform) == (8, False, "cpu")


def test_an_adopted_namespace() -> None:
    namespace: dict[str, Any] = {}
    Program().adopt(namespace)
    exec("import jax", namespace)
    exec("def later():\n    from jax import numpy\n    return numpy.ones(2)", namespace)
    assert isinstance(namespace["later"](), sd.Array)


def test_a_script_and_its_modules(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "helper_c1.py").write_text(
        "import jax.numpy as jnp\n\ntwo = jnp.full(3, 2.0)\n", "utf-8"
    )
    script = tmp_path / "train.py"
    script.write_text(
        "import sys\nimport jax\nfrom helper_c1 import two\n"
        "if __name__ == '__main__':\n"
        "    jax.config.update('jax_num_cpu_devices', 2)\n"
        "    print(sys.argv[1:], jax.device_count(), two.sum())\n",
        "utf-8",
    )
    argv, main_module = sys.argv, sys.modules["__main__"]
    found = run_script(script, ["--steps", "3"])
    assert capsys.readouterr().out == "['--steps', '3'] 2 6.0\n"
    assert isinstance(found["two"], sd.Array)
    assert (sys.argv, sys.modules["__main__"]) == (argv, main_module)
    assert "helper_c1" not in sys.modules
    assert config.num_cpu_devices == 8
    assert str(tmp_path) not in sys.path


def test_the_command(tmp_path: Path) -> None:
    def command(*words: str) -> tuple[int, str, str]:
        line = [sys.executable, "-m", "shardir", "as-jax", *words]
        ran = subprocess.run(line, capture_output=True, text=True, cwd=ROOT, check=False)
        return ran.returncode, ran.stdout, ran.stderr

    script = tmp_path / "small.py"
    script.write_text("import jax, sys\nprint(jax, sys.argv[1:])\njax.numpy.sinn(1)\n", "utf-8")
    code, out, err = command(str(script), "x", "--help", "-n", "3")
    assert (code, out) == (1, "<module 'jax' by shardir> ['x', '--help', '-n', '3']\n")
    assert err.startswith(
        "error: jax.numpy.sinn is not covered by shardir; the nearest is jax.numpy.sin\n"
    )
    missing = f"cannot run 'nowhere.py': the folder {str(ROOT)!r} has no such file"
    assert command("nowhere.py") == (1, "", f"error: {missing}\n")
    script.write_text("import jax\n\ndef f():\n    return 1 // 0\n\nf()\n", "utf-8")
    code, out, err = command(str(script))
    lines = err.splitlines()
    assert (code, lines[0], lines[-1]) == (
        1,
        "Traceback (most recent call last):",
        "ZeroDivisionError: integer division or modulo by zero",
    )
    assert [line.split(", ")[1] for line in lines if line.startswith("  File")] == [
        "line 6",
        "line 4",
    ]


def test_a_program_with_explicit_axes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "explicit.py"
    script.write_text(
        "import jax, jax.numpy as jnp, numpy as np\n"
        "from jax.sharding import AxisType, PartitionSpec as P, auto_axes, reshard\n"
        "mesh = jax.make_mesh((2,), ('s',), axis_types=(AxisType.Explicit,))\n"
        "y, w = np.arange(40, dtype=np.float32).reshape(5, 2, 4), np.ones(4, np.float32)\n"
        "with jax.set_mesh(mesh):\n"
        "    assert jax.sharding.get_abstract_mesh().axis_types == (AxisType.Explicit,)\n"
        "    x = reshard(jnp.asarray(y), P(None, 's', None))\n"
        "    got = jax.lax.map(lambda a: (w * a).sum(-1), x, batch_size=10)\n"
        "    k = jax.random.normal(jax.random.key(1), (100,), out_sharding=P('s'))\n"
        "    v = jax.jit(auto_axes(lambda a: a * 2, out_sharding=P('s')))(k)\n"
        "    with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):\n"
        "        z = jax.jit(lambda: jax.nn.initializers.ones(k, (4,), out_sharding=P('s')))()\n"
        "np.testing.assert_allclose(got, y.sum(-1))\n"
        "np.testing.assert_array_equal(v, 2 * np.asarray(k))\n"
        "print(x.sharding.spec, k.sharding.spec, v.sharding.spec, z.sharding.spec)\n",
        "utf-8",
    )
    run_script(script, [])
    cut = "P('s',)"
    assert capsys.readouterr().out == f"P(None, 's', None) {cut} {cut} {cut}\n"


def error_of(kind: type[Exception], line: str) -> str:
    with pytest.raises(kind) as caught:
        Program().execute(f"import jax\n{line}", {})
    return str(caught.value).partition("\n")[0]


def test_modules_state_their_files() -> None:
    names: dict[str, Any] = {}
    Program().execute("import inspect, jax, jax.numpy\nfile = inspect.getfile(jax.numpy)", names)
    assert names["jax"].__file__ == sd.__file__
    assert names["file"] == snp.__file__
    spec = names["jax"].numpy.__spec__
    assert (spec.name, spec.parent, spec.origin) == ("jax.numpy", "jax.numpy", snp.__file__)


def test_reload_keeps_modules_with_names_of_jax_and_repeats_others(tmp_path: Path) -> None:
    (tmp_path / "counted.py").write_text(
        "import jax\ncount = globals().get('count', 0) + 1\nones = jax.numpy.ones\n", "utf-8"
    )
    script = tmp_path / "main.py"
    script.write_text(
        "import importlib, math, counted, jax\n"
        "from importlib import reload\n"
        "same = importlib.reload(jax) is jax and reload(jax.numpy).ones is jax.numpy.ones\n"
        "again = reload(counted)\n"
        "plain = reload(math) is math and reload(importlib) is importlib\n",
        "utf-8",
    )
    names: dict[str, Any] = run_script(script)
    assert names["same"] is names["plain"] is True
    assert names["again"] is names["counted"]
    assert names["counted"].count == 2
    assert names["counted"].ones is snp.ones


NEAREST = {
    "jax.numpy.sinn": "the nearest is jax.numpy.sin",
    "jax.numpy.psum": "the nearest is jax.lax.psum",
    "jax.experimental.maps.xmap": "the nearest is jax.shard_map",
    "jax.experimental.host_callback": "the nearest is jax.pure_callback",
    "jax.abstract_arrays": "the nearest is jax.ShapeDtypeStruct",
    "jax.lax.tie_in": "the nearest is jax.lax.optimization_barrier",
    "jax.numpyy": "the nearest is jax.numpy",
    "jax.ops.index_update": "the nearest is jax.Array.at",
    "jax.random.normall": "the nearest is jax.random.normal",
    "jax.ref": "arrays do not change in place; update a copy with x.at[index].set(value), and "
    "carry it through loops in the state of shardir.lax.scan or fori_loop",
    "jax.lax.convolution": "nothing here is near to it",
    "jax.types": "nothing here is near to it",
    "jax.qqq": "nothing here is near to it",
}


@pytest.mark.parametrize("name", NEAREST)
def test_a_missing_name_is_an_error(name: str) -> None:
    expected = f"{name} is not covered by shardir; {NEAREST[name]}"
    assert error_of(UncoveredName, name) == expected
    with pytest.raises(AttributeError, match="is not covered"):
        Program().execute(f"import jax\n{name}", {})
    place, _, last = name.rpartition(".")
    assert error_of(UncoveredImport, f"from {place} import {last}") == expected
    with pytest.raises(ImportError, match="is not covered"):
        Program().execute(f"import {name}", {})


def test_tables_refer_to_existing_names() -> None:
    for full in (*MOVED_NAMES, *IGNORED_SETTING_CONTEXTS, *NO_OP_FUNCTIONS, *CONTAINER_MODULES):
        assert look_up_jax(full) is not None
    for near in ALTERNATIVES.values():
        assert (look_up_jax(near) if near.startswith("jax.") else import_from(near)) is not None


def import_from(name: str) -> Any:
    place, _, last = name.rpartition(".")
    return getattr(import_module(place), last)


def test_errors_name_the_line(tmp_path: Path) -> None:
    script = tmp_path / "wrong.py"
    script.write_text("import jax\n\nx = jax.numpy.sinn(1)\n", "utf-8")
    with pytest.raises(UncoveredName) as caught:
        run_script(script)
    assert str(caught.value).endswith("3 | x = jax.numpy.sinn(1)\n  |     ^^^^^^^^^^^^^^")


def test_a_script_that_is_not_python_is_a_syntax_error_at_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "wrong.py"
    monkeypatch.setattr(sys, "argv", ["shardir", "as-jax", str(script)])
    script.write_text("def f(x:\n", "utf-8")
    with pytest.raises(SystemExit):
        main()
    text = capsys.readouterr().err
    assert text.startswith(f'  File "{script}", line 1\n    def f(x:\n')
    assert text.endswith("SyntaxError: '(' was never closed\n")


def test_hasattr_reports_missing_names() -> None:
    namespace: dict[str, Any] = {}
    Program().execute(
        "import jax\nhas = hasattr(jax, 'jit'), hasattr(jax, 'qqq')\n"
        "try:\n    from jax.experimental import pallas\nexcept ImportError:\n    pallas = None\n"
        "names = dir(jax.numpy)\n",
        namespace,
    )
    assert namespace["has"] == (True, False)
    assert namespace["pallas"] is None
    assert {"sin", "linalg", "ndarray"} <= {*namespace["names"]} | {"ndarray"}


def test_checks_of_jax_have_their_inactive_values() -> None:
    namespace: dict[str, Any] = {}
    Program().execute("import jax\nmode = jax.config.jax_numpy_dtype_promotion", namespace)
    assert namespace["mode"] == "standard"


def test_tracers_are_instances_of_jax_array() -> None:
    namespace: dict[str, Any] = {}
    Program().execute(
        "import jax, jax.numpy as jnp\nfound = []\n"
        "jax.jit(lambda x: found.append(isinstance(x, jax.Array)))(1.0)\n"
        "found += [isinstance(jnp.ones(2), jax.Array), isinstance(1.0, jax.Array)]\n",
        namespace,
    )
    assert namespace["found"] == [True, True, False]


def test_private_parameters_of_scan_and_einsum() -> None:
    namespace: dict[str, Any] = {}
    Program().execute(
        "import jax, jax.numpy as jnp\n"
        "last, _ = jax.lax.scan(lambda c, x: (c + x, x), 0.0, jnp.ones(3), _split_transpose=True)\n"
        "x = jnp.ones((2, 3))\n"
        "y = jnp.einsum('ij,kj->ik', x, x, _dot_general=jax.lax.dot_general)\n",
        namespace,
    )
    assert float(namespace["last"]) == 3
    assert namespace["y"].tolist() == [[3, 3], [3, 3]]
    assert error_of(ArgumentError, "jax.numpy.einsum('i->', [1.0], _dot_general=max)") == (
        "einsum multiplies with lax.dot_general, got _dot_general=<built-in function max>; "
        "call this function instead of einsum"
    )


def test_invalid_settings_are_errors() -> None:
    assert error_of(UncoveredSetting, "jax.config.update('jax_enable_x46', True)") == (
        "the setting 'jax_enable_x46' of JAX is not covered by shardir; the nearest is "
        "'jax_enable_x64'"
    )
    assert error_of(UncoveredSetting, "jax.config.jax_qqq") == (
        "the setting 'jax_qqq' of JAX is not covered by shardir; there is nothing like it"
    )
    assert error_of(UncoveredSetting, "jax.config.FLAGS.jax_qqq = 1").startswith(
        "the setting 'jax_qqq"
    )
    assert error_of(SettingError, "jax.config.jax_enable_x64 = True") == (
        "jax.config.jax_enable_x64 cannot be assigned; "
        "write jax.config.update('jax_enable_x64', ...)"
    )
    assert error_of(SettingError, "jax.config.update('jax_platforms', 'npu')") == (
        "the setting shown_platform is 'npu'; it must be 'cpu', 'gpu', 'tpu' or 'ipu'"
    )


def test_integers_in_indices_out_of_range_follow_the_rules_of_jax(tmp_path: Path) -> None:
    script = tmp_path / "clamp.py"
    script.write_text(
        "import jax\n"
        "import jax.numpy as jnp\n"
        "x = jnp.arange(10)\n"
        "read = int(x[11]), int(x[-11]), int(jax.jit(lambda x: x[11])(x))\n"
        "updated = x.at[11].set(3).tolist()\n"
    )
    names = run_script(script)
    assert names["read"] == (9, 0, 9)
    assert names["updated"] == list(range(10))
    with shardir_as_jax():
        import jax.numpy as jnp

        assert int(jnp.arange(10)[11]) == 9
    with shardir_as_jax(check_static_indices=True), pytest.raises(IndexError):
        jnp.arange(10)[11]
    with pytest.raises(IndexError):
        jnp.arange(10)[11]
