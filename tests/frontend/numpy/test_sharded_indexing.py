"""Indexing, sorting and loops have the same results on sharded and on unsharded arrays."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from shardir.frontend.arrays.device_transfer import device_put
from shardir.frontend.dispatch.jit import jit
from shardir.frontend.lax import api as lax
from shardir.frontend.numpy import api as snp
from shardir.frontend.pytree import tree
from shardir.frontend.shardings.mesh import make_mesh
from shardir.frontend.shardings.partition_spec import PartitionSpec as P
from shardir.frontend.shardings.sharding import NamedSharding
from tests.namespace import run, same

pytestmark = pytest.mark.sample(4)

MESH = make_mesh((4, 2), ("x", "y"))
X = np.arange(8 * 16 * 4, dtype=np.float32).reshape(8, 16, 4)
PLACES = np.array([3, 0, -1, 5, 20, 2, 7, -9], np.int32)
SPECS = [P("x", "y"), P(None, "x", "y"), P(("x", "y")), P("y", None, "x")]

CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "an integer": lambda x, i: x[2],
    "slices": lambda x, i: x[1:7:2, :, ::-1],
    "a traced integer": lambda x, i: x[:, i[0]],
    "an index array": lambda x, i: x[i],
    "several index arrays": lambda x, i: x[i, :, i % 4],
    "set": lambda x, i: x.at[i].set(1.0),
    "set a slice": lambda x, i: x.at[2:6, 3].set(0.0),
    "set every third": lambda x, i: x.at[:, ::3].multiply(2.0),
    "add": lambda x, i: x.at[:, i].add(x[:, :8]),
    "set by mask": lambda x, i: x.at[x > 100].set(-1.0),
    "take": lambda x, i: snp.take(x, i, axis=1),
    "take along": lambda x, i: snp.take_along_axis(x, i[:, None, None] % 8, 0),
    "nonzero": lambda x, i: snp.nonzero(x > 300, size=10),
    "unique": lambda x, i: snp.unique(i, size=8),
    "sort": lambda x, i: snp.sort(-x, 1),
    "argsort": lambda x, i: snp.argsort(-x, 0),
    "top_k": lambda x, i: lax.top_k(x, 2),
    "searchsorted": lambda x, i: snp.searchsorted(snp.ravel(x), i.astype(float)),
    "bincount": lambda x, i: snp.bincount(i, length=8),
    "roll": lambda x, i: snp.roll(x, i[:1], 1),
    "concatenate": lambda x, i: snp.concatenate([x, x[:, :3]], 1),
    "pad": lambda x, i: snp.pad(x, ((1, 2), (0, 0), (3, 1)), "reflect"),
    "reshape": lambda x, i: snp.reshape(x, (16, 8, 4)),
    "transpose": lambda x, i: x.transpose(2, 0, 1),
    "repeat": lambda x, i: snp.repeat(x, 3, 0),
    "tile": lambda x, i: snp.tile(x, (1, 2, 1)),
    "split": lambda x, i: snp.split(x, 4, 1),
    "scan": lambda x, i: lax.scan(lambda c, row: (c + row, c.sum()), x[0], x),
    "while": lambda x, i: lax.fori_loop(0, i[0], lambda k, c: c.at[k].add(1.0), x),
    "cond": lambda x, i: lax.cond(i[0] > 1, lambda x: x * 2, lambda x: x, x),
    "update": lambda x, i: lax.dynamic_update_slice(x, x[:2, :3] * 0, (i[0], i[1], 0)),
}


@pytest.mark.parametrize("spec", SPECS, ids=str)
@pytest.mark.parametrize("name", CALLS)
def test_results_do_not_depend_on_the_sharding(name: str, spec: P) -> None:
    call = CALLS[name]
    expected = tree.leaves(run(call, X, PLACES))
    x = device_put(X, NamedSharding(MESH, spec))
    i = device_put(PLACES, NamedSharding(MESH, P("x") if spec[0] != "x" else P()))
    for compute in (jit(call), call):
        same([np.asarray(leaf) for leaf in tree.leaves(compute(x, i))], expected)
