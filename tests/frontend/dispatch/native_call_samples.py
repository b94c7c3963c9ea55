"""Arrays, compiled functions and a fixture that tests of the native call cache share."""

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir import lax
from shardir.backends.native import native
from shardir.sharding import NamedSharding, PartitionSpec as P

A = np.arange(12, dtype=np.float32).reshape(3, 4)
B = A[::-1].copy() + 1
X, Y = snp.asarray(A), snp.asarray(B)
WHOLE = snp.asarray(A.astype(np.int32))

scaled = sd.jit(lambda x, n: x * n, static_argnums=1)
passed = sd.jit(lambda t: {"x": t["x"], "sum": t["x"] + t["y"][0], "all": t["y"]})
plus = sd.jit(lambda x, y: {"sum": x + y, "parts": (x - y, y * 2)})

MESH = sd.make_mesh((2,), ("d",))
SHARDED = sd.device_put(A.T.copy(), NamedSharding(MESH, P("d")))
gathered = sd.jit(
    sd.shard_map(
        lambda x: lax.all_gather(x, "d", tiled=True),
        mesh=MESH,
        in_specs=P("d"),
        out_specs=P(),
        check_vma=False,
    )
)


if native is None:
    pytest.skip("the C extension is not installed", allow_module_level=True)

SHOULD_INSERT = native.CallTable.should_insert


@pytest.fixture(autouse=True)
def insert_every_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Insert every call into the native call cache, whatever calls other tests made before."""
    monkeypatch.setattr(native.CallTable, "should_insert", lambda table: True)
