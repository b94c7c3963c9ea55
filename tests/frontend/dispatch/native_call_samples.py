"""What tests of answered calls share: arrays, compiled functions; every call is learned."""

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir.backends.cpu.dispatch.call_cache import CallTable

A = np.arange(12, dtype=np.float32).reshape(3, 4)
B = A[::-1].copy() + 1
X, Y = snp.asarray(A), snp.asarray(B)
WHOLE = snp.asarray(A.astype(np.int32))

scaled = sd.jit(lambda x, n: x * n, static_argnums=1)
passed = sd.jit(lambda t: {"x": t["x"], "sum": t["x"] + t["y"][0], "all": t["y"]})
plus = sd.jit(lambda x, y: {"sum": x + y, "parts": (x - y, y * 2)})


WORTH_IT = CallTable.should_insert


@pytest.fixture(autouse=True)
def every_call_is_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever other tests have called so often that only some calls still are."""
    monkeypatch.setattr(CallTable, "should_insert", lambda table: True)
