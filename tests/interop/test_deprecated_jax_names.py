"""Programs in the style of older JAX documents, with deprecated names, run by shardir."""

import os
from typing import Any

import numpy as np
import pytest

from shardir.frontend.config import config
from shardir.interop.in_place_of_jax import Program
from shardir.interop.jax_shim.jax_config import program_settings


def run(text: str, **settings: object) -> dict[str, Any]:
    """Run a program and return its names; errors refer to its lines."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    with program_settings(settings):
        Program().execute(compile(text, "<program>", "exec"), namespace)
        namespace["reprs"] = [repr(x) for x in namespace.get("shown", ())]
    return namespace


def test_ipu_devices_and_pmap() -> None:
    found = run(
        """
from jax.config import config
config.FLAGS.jax_ipu_device_count = 2

import jax
import numpy as np
from jax import lax, pmap

chips = jax.devices("ipu")

@pmap
def cube(x):
    return x ** 3

made = cube(np.arange(6.0, dtype=np.float32).reshape(2, 3))
moved = jax.device_put(made[1], chips[0])
count = jax.device_count()
shown = [chips, jax.default_backend(), [b.device() for b in made.device_buffers], moved.device()]
"""
    )
    both = "[IpuDevice(id=0, num_tiles=1472, version=ipu2), IpuDevice(id=1, num_tiles=1472, v"
    assert found["reprs"][0].startswith(both)
    assert found["reprs"][1] == "'ipu'"
    assert found["reprs"][2] == found["reprs"][0]
    assert found["reprs"][3] == "IpuDevice(id=0, num_tiles=1472, version=ipu2)"
    assert found["count"] == 2
    np.testing.assert_array_equal(found["made"], [[0, 1, 8], [27, 64, 125]])
    assert config.shown_platform == "cpu"


def test_nested_pmap_over_some_devices() -> None:
    found = run(
        """
from functools import partial
import numpy as np
import jax
from jax import lax, pmap

@partial(pmap, axis_name="outer")
@partial(pmap, axis_name="inner")
def shares(x):
    return x / lax.psum(x, "outer"), x / lax.psum(x, ("outer", "inner"))

down, whole = shares(np.array([[1.0, 2.0], [3.0, 2.0]], np.float32))

last = jax.devices()[4:]
parts = jax.device_put_sharded([np.full(2, i, np.float32) for i in range(4)], last)
means = pmap(lambda x: lax.pmean(x, "i"), axis_name="i", devices=last)(parts)
same = jax.device_put_replicated(np.ones(3, np.float32), last[:2])
where = [b.device().id for b in means.device_buffers]
"""
    )
    np.testing.assert_array_equal(found["down"], [[0.25, 0.5], [0.75, 0.5]])
    np.testing.assert_array_equal(found["whole"], [[0.125, 0.25], [0.375, 0.25]])
    np.testing.assert_array_equal(found["means"], np.full((4, 2), 1.5))
    assert found["same"].shape == (2, 3)
    assert found["where"] == [4, 5, 6, 7]


def test_a_cellular_automaton_with_halo_exchange() -> None:
    found = run(
        """
from functools import partial
import numpy as np
import jax
import jax.numpy as jnp
from jax import lax, pmap
from jax._src.lib import xla_bridge

n = xla_bridge.device_count()

def neighbours(x, name):
    right = lax.ppermute(x[-1:], perm=[(i, (i + 1) % n) for i in range(n)], axis_name=name)
    left = lax.ppermute(x[:1], perm=[((i + 1) % n, i) for i in range(n)], axis_name=name)
    return jnp.concatenate([right, x, left])

@partial(pmap, axis_name="ring")
def rule(x):
    wide = neighbours(x, "ring")
    return lax.bitwise_xor(wide[:-2], lax.bitwise_and(wide[1:-1], wide[2:]))

cells = np.arange(24).reshape(n, 3) % 5 < 2
after = rule(cells)
"""
    )
    flat = found["cells"].ravel()
    expected = np.roll(flat, 1) ^ (flat & np.roll(flat, -1))
    np.testing.assert_array_equal(np.asarray(found["after"]).ravel(), expected)


def test_pjit_with_an_entered_mesh() -> None:
    found = run(
        """
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.maps import Mesh
from jax.experimental.mesh_utils import create_device_mesh
from jax.experimental.pjit import PartitionSpec as P, pjit, with_sharding_constraint

@jax.jit
def plain(x, w):
    return jnp.tanh(x @ w)

def cut(x, w):
    return with_sharding_constraint(plain(x, w), P("x", "y"))

x = np.linspace(-1, 1, 32, dtype=np.float32).reshape(8, 4)
w = np.ones((4, 6), np.float32)
with Mesh(create_device_mesh((4, 2)), ("x", "y")):
    step = pjit(cut, in_axis_resources=(P("x"), P(None, "y")), out_axis_resources=P("x"))
    made = step(x, w)
"""
    )
    np.testing.assert_allclose(found["made"], np.tanh(found["x"] @ found["w"]), rtol=1e-6)
    assert {shard.data.shape for shard in found["made"].addressable_shards} == {(2, 6)}


def test_pjit_with_planned_shardings() -> None:
    found = run(
        """
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.mesh_utils import create_device_mesh
from jax.experimental.pjit import AUTO, pjit
from jax.sharding import Mesh

mesh = Mesh(create_device_mesh((4, 2)), ("x", "y"))
product = pjit(jnp.matmul, in_shardings=AUTO(mesh), out_shardings=AUTO(mesh))
made = product(np.ones((16, 8), np.float32), np.ones((8, 32), np.float32))
"""
    )
    np.testing.assert_allclose(found["made"], np.full((16, 32), 8.0))
    assert {shard.data.size for shard in found["made"].addressable_shards} == {16 * 32 // 8}


def test_positional_sharding_and_drawings(capsys: pytest.CaptureFixture[str]) -> None:
    found = run(
        """
import jax
import jax.numpy as jnp
from jax.experimental import mesh_utils
from jax.sharding import PositionalSharding

devices = PositionalSharding(mesh_utils.create_device_mesh((8,)))
grid = devices.reshape(2, 4)
x = jax.device_put(jnp.arange(64.0).reshape(8, 8), grid.replicate(axis=0, keepdims=True))
jax.debug.visualize_array_sharding(jnp.cos(x))
shown = [grid.T, grid.replicate(0).shape, jax.devices()[2]]
""",
        shown_platform="tpu",
    )
    assert found["reprs"] == [
        "PositionalSharding([[{TPU 0} {TPU 6}]\n                    [{TPU 1} {TPU 7}]\n"
        "                    [{TPU 2} {TPU 4}]\n                    [{TPU 3} {TPU 5}]])",
        "(1, 4)",
        "TpuDevice(id=2, process_index=0, coords=(1,0,0), core_on_chip=0)",
    ]
    drawn = capsys.readouterr().out
    assert "│TPU 0,6│TPU 1,7│TPU 2,4│TPU 3,5│" in drawn


def test_raw_and_typed_random_keys() -> None:
    found = run(
        """
import jax

@jax.jit
def noisy(key, x):
    return x + jax.random.uniform(key, x.shape)

def asks(x):
    return "permute" in noisy.lower(key, x).compile().as_text()

key = jax.random.key(3)
x = jax.device_put(jax.numpy.zeros(16), jax.sharding.PositionalSharding(jax.devices()))
jax.config.update("jax_threefry_partitionable", False)
older, moves = noisy(key, x), asks(x)
jax.config.update("jax_threefry_partitionable", True)
newer, still = noisy(key, x), asks(x)
"""
    )
    assert (found["moves"], found["still"]) == (True, False)
    assert not np.array_equal(found["older"], found["newer"])
    assert config.threefry_partitionable


def test_the_device_count_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", "")
    found = run(
        """
import os
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=3"

import jax
import jax.numpy as jnp

count = jax.local_device_count()
key = jax.random.PRNGKey(7)
v = jax.random.normal(key, shape=(3, 4))
dots = jax.pmap(lambda a, b: jnp.vdot(a, b), in_axes=(0, None))(v, v[0])
swapped = jax.pmap(lambda a: jax.lax.all_gather(a, "d"), axis_name="d")(v)
"""
    )
    assert found["count"] == 3
    np.testing.assert_allclose(found["dots"], np.asarray(found["v"]) @ found["v"][0], rtol=1e-5)
    assert found["swapped"].shape == (3, 3, 4)
    assert os.environ["XLA_FLAGS"]
    # An existing value has lower priority than a stated value and than the program.
    assert run("import jax\ncount = jax.device_count()")["count"] == 3
    assert run("import jax\ncount = jax.device_count()", num_cpu_devices=5)["count"] == 5
    later = "import jax\njax.config.update('jax_num_cpu_devices', 2)\ncount = jax.device_count()"
    assert run(later)["count"] == 2


@pytest.mark.parametrize(
    "line",
    [
        "from jax.interpreters.pxla import PartitionSpec, ShardedDeviceArray",
        "from jax.interpreters.xla import DeviceArray; isinstance(jnp.ones(2), DeviceArray)",
        "from jax._src.sharding_impls import NamedSharding",
        "from jax._src.mesh import Mesh",
        "from jax.lib import xla_bridge; xla_bridge.get_backend().platform",
        "from jax.api import jit, vmap",
        "import jax.tree_util as tu; tu.tree_map(abs, [1])",
        "jax.tree_map(abs, [1]); jax.tree_multimap(max, [1], [2])",
        "jax.tree_leaves({'a': 1}); jax.tree_flatten([1])",
        "jax.host_id(), jax.host_count(), jax.process_count()",
        "from jax.experimental import enable_x64, io_callback, PartitionSpec",
        "from jax.experimental.shard_map import shard_map",
        "from jax import config; config.update('jax_debug_nans', False)",
        "config = jax.config; config.parse_flags_with_absl(); config.jax_enable_x64",
        "from jax.custom_derivatives import custom_jvp, custom_vjp",
        "from jax.typing import ArrayLike, DTypeLike",
        "from jax.stages import Compiled, Lowered",
        "from jax.core import Tracer",
        "jax.clear_caches(); jax.effects_barrier()",
        "with jax.checking_leaks(), jax.debug_nans(True): jnp.sin(1.0)",
        "with jax.default_matmul_precision('float32'): jnp.ones(2) @ jnp.ones(2)",
        "str(jax.make_jaxpr(jnp.sin)(1.0)).index('sin')",
        "from jax.errors import TracerBoolConversionError, UnexpectedTracerError",
        "from jax.numpy import *; linspace(0, 1, 3)",
        "from jax.experimental.sharding import NamedSharding",
        "jax.Shard, jax.Array, jax.jacobian",
        "import jax.scipy.special; jax.scipy.special.erf(0.5)",
        "import jax.numpy.linalg as la; la.norm(jnp.ones(3))",
        "assert jax.__version_info__ >= (0, 4) and jax.__version__",
        "import jax.profiler\nwith jax.profiler.TraceAnnotation('step'): jnp.sin(1.0)",
        "jax.ops.segment_sum(jnp.ones(4), jnp.arange(4) // 2, 2)",
        "from jax.custom_batching import custom_vmap, sequential_vmap",
        "from jax.sharding import use_mesh\nwith use_mesh(jax.make_mesh((8,), ('i',))): pass",
        "jax.dlpack.from_dlpack(jnp.ones(2))",
    ],
)
def test_moved_names(line: str) -> None:
    run(f"import jax\nimport jax.numpy as jnp\n{line}")
