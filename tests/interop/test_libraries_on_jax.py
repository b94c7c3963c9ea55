"""Libraries that import JAX, inside of programs whose `import jax` imports shardir."""

import subprocess
import sys
import threading
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardir as sd
from shardir.interop.in_place_of_jax import Program, UncoveredInternal, run_script
from shardir.interop.jax_shim import libraries
from shardir.interop.jax_shim.internals import Placeholder, is_name_of_jax
from shardir.interop.jax_shim.libraries import imports_jax

ROOT = Path(__file__).parents[2]

LIBRARY = """\
import importlib, sys
from dataclasses import dataclass
import jax, jax.numpy as jnp, jax.extend.core
from jax.interpreters import ad, batching, mlir
from jax._src.core import Effect
from . import extra

later = importlib.import_module(".lazy", __package__)
found = importlib.import_module("jax.numpy"), sys.modules["jax"], "jax" in sys.modules

double_p = jax.extend.core.Primitive("double")
double_p.multiple_results = False

@double_p.def_impl
def double_impl(x):
    return 2 * x

ad.primitive_jvps[double_p] = lambda primals, tangents: None
mlir.register_lowering(double_p, mlir.lower_fun(double_impl))

class Ordered(Effect):
    pass

def annotated(x: "jax.core.Trace | None", y: jax.core.Trace | None = None) -> jax.Array | Effect:
    return x

@dataclass
class Point:
    x: "jnp.ndarray"

def double(x):
    return double_p.bind(x)

def half(x):
    assert isinstance(x, jax.Array) and not isinstance(x, jax.core.Trace | Effect)
    assert not issubclass(float, jax.core.Trace)
    return Point(jnp.asarray(x) / 2).x
"""


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package that imports JAX, on `sys.path` alone."""
    name = f"library_{tmp_path.name}"
    folder = tmp_path / "site-packages" / name
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(LIBRARY, "utf-8")
    (folder / "extra.py").write_text("from jax import jit\n", "utf-8")
    (folder / "lazy.py").write_text("import jax\n", "utf-8")
    monkeypatch.syspath_prepend(folder.parent)
    return name


def run(code: str) -> dict[str, Any]:
    namespace: dict[str, Any] = {}
    Program().execute(code, namespace)
    return namespace


def test_a_library_of_a_program_imports_shardir(library: str) -> None:
    ran = run(f"import {library} as lib\nimport jax.numpy as jnp\ny = lib.half(jnp.ones(3))")
    lib = ran["lib"]
    assert lib.jax.jit is lib.extra.jit is lib.later.jax.jit is sd.jit
    assert lib.found[0].ones is sd.numpy.ones
    assert lib.found[1].jit is sd.jit
    assert lib.found[2]
    assert ran["y"].tolist() == [0.5, 0.5, 0.5]
    assert library not in sys.modules
    jax = import_module("jax")
    assert import_module(f"{library}.extra").jit is jax.jit
    assert sys.modules[library] is not lib


def test_internals_of_jax_are_refused_where_a_library_computes_with_them(library: str) -> None:
    code = f"import {library} as lib\n\ndef f(x):\n    return lib.double(x)\n\ny = f(1.0)\n"
    with pytest.raises(UncoveredInternal) as caught:
        Program().execute(compile(code, "train.py", "exec"), {})
    line = LIBRARY.splitlines().index("    return double_p.bind(x)") + 1
    assert str(caught.value).partition("\n")[0] == (
        f"{library} needs jax.extend.core.Primitive.bind of JAX ({library}/__init__.py:{line}), "
        "which shardir does not have; pass the function that calls it to "
        "shardir.interop.jax.from_jax in a program that imports shardir"
    )
    assert "--> train.py:4:" in str(caught.value)


USES: tuple[str, ...] = (
    "p + 1", "1 - p", "p()", "bool(p)", "list(p)", "1 in p", "float(p)", "range(p)", "p < 1",
    "p[0]()", "p.attribute()", "np.asarray(p)", "sd.numpy.sin(p)", "p | 3", "Derived()",
)  # fmt: skip


@pytest.mark.parametrize("use", USES)
def test_every_use_of_a_placeholder_is_an_error(use: str) -> None:
    p: Any = Placeholder("jax._src.core.Trace", "lib")

    class Derived(p):  # type: ignore[misc]
        pass

    with pytest.raises(UncoveredInternal, match=r"^lib needs jax\._src\.core\.Trace\b"):
        eval(use, {"p": p, "np": np, "sd": sd, "Derived": Derived})


def test_placeholders_accept_definitions() -> None:
    p: Any = Placeholder("jax._src.core.Trace", "lib")
    p.attribute = 3
    p["item"] = 3
    assert p.other is p.other
    assert (
        repr(p.attribute) == "<jax._src.core.Trace.attribute of JAX, which shardir does not have>"
    )
    assert isinstance(1, p | int)
    assert not isinstance(1, p)
    assert not issubclass(int, p)
    assert p[int] is p
    assert {p: 1}[p] == 1
    with pytest.raises(AttributeError):
        p.__wrapped__  # noqa: B018


def test_only_names_that_jax_has_are_placeholders(library: str) -> None:
    assert is_name_of_jax("jax.core.Trace")
    assert is_name_of_jax("jax.extend.core.primitives")
    assert not is_name_of_jax("jax.core.get_aval")
    assert is_name_of_jax("jax.core.Trace.method") is None
    code = f"import {library} as lib\nhas = [hasattr(lib.jax, n) for n in ('new_ref', 'qqq')]"
    assert run(code)["has"] == [True, False]
    with pytest.raises(AttributeError, match="has no attribute 'qqq'"):
        Placeholder("jax._src.core", "lib").qqq  # noqa: B018


def test_libraries_are_recognized_by_requirements_and_by_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {
        "direct": "Requires-Dist: jax>=0.4",
        "indirect": "Requires-Dist: Direct",
        "extra": 'Requires-Dist: jaxlib; extra == "jax"',
        "other_extra": 'Requires-Dist: direct; extra == "jax"',
        "unrelated": "Requires-Dist: numpy",
        "text_c5": "",
        "name_c5": "",
        "local_c5": "",
        "compiled_c5": "",
    }
    sources = {
        "text_c5": "def f():\n    from jax import numpy\n",
        "name_c5": "import sys\njax = sys.modules.get('jax')\n",
        "local_c5": "import jaxless\nx = 'jaxless'\n",
        "compiled_c5": "import jax\n",
    }
    for name, header in texts.items():
        info = tmp_path / f"{name}-1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Name: {name}\nVersion: 1\n{header}\n\nimport jax\n")
        (info / "RECORD").write_text(f"{name}/__init__.py,,\n{name}.txt,,\n")
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(sources.get(name, ""))
    (tmp_path / "compiled_c5" / "core.abi3.so").write_text("")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    search = libraries.packages_requiring_jax.__wrapped__
    assert search() == {"direct", "indirect", "extra"}
    monkeypatch.setattr(libraries, "packages_requiring_jax", search)
    monkeypatch.setattr(libraries, "_known", {})
    found = [name for name in texts if imports_jax(name)]
    assert found == ["direct", "indirect", "extra", "text_c5", "name_c5"]
    assert not imports_jax("missing_c5")
    assert not any(map(imports_jax, ("numpy", "os", "jax", "jaxlib", "shardir")))


def test_the_modules_of_a_script_are_in_sys_modules_while_it_runs(
    library: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs = import_module(library)
    (tmp_path / "points.py").write_text(
        "from __future__ import annotations\nimport dataclasses, typing\n"
        "def make():\n    @dataclasses.dataclass\n    class P:\n"
        "        n: typing.ClassVar[int] = 3\n        x: int\n    return P(1)\n"
        "class Named:\n    pass\n",
        "utf-8",
    )
    script = tmp_path / "main.py"
    script.write_text(
        f"import pickle, sys, threading, points\nimport {library} as lib\n"
        "named = pickle.loads(pickle.dumps(points.Named()))\n"
        "assert type(named) is points.Named\n"
        "def work():\n    import json, points\n    from jax import jit\n"
        "    out.append((points, jit))\n"
        "out = []\nthread = threading.Thread(target=work)\nthread.start()\nthread.join(20)\n"
        f"print(points.make(), sys.modules[{library!r}] is lib, out[0][0] is points)\n",
        "utf-8",
    )
    names: dict[str, Any] = run_script(script)
    assert capsys.readouterr().out == "make.<locals>.P(x=1) True True\n"
    assert names["out"][0][1] is sd.jit
    assert sys.modules[library] is theirs
    assert "points" not in sys.modules
    assert not any(type(finder).__name__ == "_ProgramFinder" for finder in sys.meta_path)


def test_other_threads_import_the_library_with_jax(library: str) -> None:
    program, seen = Program(), []

    def elsewhere() -> None:
        seen.append(import_module(library).extra.jit)

    with_program = threading.Thread(
        target=lambda: program.execute(f"import {library}\nlib = {library}", namespace)
    )
    namespace: dict[str, Any] = {}
    with_program.start()
    with_program.join()
    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert namespace["lib"].extra.jit is sd.jit
    assert seen == [import_module("jax").jit]


SCRIPT = """\
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

key = jax.random.key(0)
x = jax.random.normal(key, (8, 4))
model = eqx.nn.MLP(4, 2, 8, 1, key=key)
optim = optax.adam(1e-2)
state = optim.init(eqx.filter(model, eqx.is_array))

@eqx.filter_jit
def step(model, state, x):
    loss = lambda model: jnp.mean(jax.vmap(model)(x) ** 2)
    value, grads = eqx.filter_value_and_grad(loss)(model)
    updates, state = optim.update(grads, state)
    return eqx.apply_updates(model, updates), state, value

values = []
for _ in range(3):
    model, state, value = step(model, state, x)
    values.append(float(value))

linen = nn.Dense(3)
params = linen.init(key, x)
made = np.asarray(linen.apply(params, x))
is_array = isinstance(params["params"]["kernel"], jax.Array)
"""


def test_equinox_flax_and_optax_compute_as_with_jax(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT, "utf-8")
    ours: dict[str, Any] = run_script(script)
    theirs: dict[str, Any] = {}
    exec(SCRIPT, theirs)
    assert ours["is_array"]
    assert ours["jax"].jit is sd.jit
    assert ours["eqx"] is not theirs["eqx"]
    np.testing.assert_allclose(ours["values"], theirs["values"], rtol=1e-5)
    np.testing.assert_allclose(ours["made"], theirs["made"], rtol=1e-5)


NNX = """\
import jax, jax.numpy as jnp, optax
from flax import nnx

class Net(nnx.Module):
    def __init__(self, rngs):
        self.linear = nnx.Linear(4, 8, rngs=rngs)
        self.dropout = nnx.Dropout(0.2, rngs=rngs)
        self.head = nnx.Linear(8, 2, rngs=rngs)

    def __call__(self, x):
        return self.head(self.dropout(nnx.relu(self.linear(x))))

model = Net(nnx.Rngs(0))
optimizer = nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)

@nnx.jit
def step(model, optimizer, x):
    value, grads = nnx.value_and_grad(lambda model: (model(x) ** 2).mean())(model)
    optimizer.update(model, grads)
    return value

x = jax.random.normal(jax.random.key(1), (8, 4))
values = [float(step(model, optimizer, x)) for _ in range(3)]
"""


@pytest.mark.long
def test_objects_of_nnx_change_as_with_jax(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(NNX, "utf-8")
    ours: dict[str, Any] = run_script(script)
    theirs: dict[str, Any] = {}
    exec(NNX, theirs)
    np.testing.assert_allclose(ours["values"], theirs["values"], rtol=1e-5)


def test_the_command_runs_a_library(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import sys, equinox as eqx, jax, jax.numpy as jnp\n"
        "print(eqx.filter_jit(lambda x: x + 1)(jnp.ones(2)), 'jax' in sys.modules)\n"
        "eqx.error_if(jnp.ones(2), jnp.array(True), 'wrong')\n",
        "utf-8",
    )
    line = [sys.executable, "-m", "shardir", "as-jax", str(script)]
    ran = subprocess.run(line, capture_output=True, text=True, cwd=ROOT, check=False)
    assert (ran.returncode, ran.stdout) == (1, "[2. 2.] False\n")
    assert ran.stderr.startswith("error: equinox needs jax.")
    assert "3 | eqx.error_if(jnp.ones(2), jnp.array(True), 'wrong')" in ran.stderr


def test_modules_that_are_loaded_are_imported_without_an_exchange(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, namespace = Program(), dict[str, Any]()
    program.execute(
        f"import {library}\ndef later():\n    import {library}.extra as extra\n"
        f"    import {library} as whole\n    from {library} import half, extra as same\n"
        "    return extra, whole, half, same\n",
        namespace,
    )
    monkeypatch.setattr(sys, "meta_path", [])
    extra, whole, half, same = namespace["later"]()
    assert extra is same is whole.extra
    assert half is whole.half
    assert library not in sys.modules


def test_a_relative_import_of_a_script_is_an_error() -> None:
    with pytest.raises(ImportError, match="attempted relative import with no known parent"):
        Program().execute("from . import other", {"__package__": ""})
