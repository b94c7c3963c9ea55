"""The shardings that a call states while others are chosen."""

from typing import Any, cast

import numpy as np

import shardir as sd
from shardir.frontend.arrays.array import from_numpy
from shardir.frontend.arrays.device_transfer import device_put
from shardir.frontend.dispatch.programs.deferred_arguments import stated_shardings
from shardir.sharding import NamedSharding, PartitionSpec as P


def test_a_request_precedes_the_sharding_that_an_argument_has_on_a_mesh() -> None:
    mesh = sd.make_mesh((2,), ("a",))
    sharded, whole = NamedSharding(mesh, P("a")), NamedSharding(mesh, P())
    x = from_numpy(np.ones(4, np.float32))
    signatures = [cast(Any, device_put(x, each)).signature for each in (sharded, sharded)]
    elsewhere = cast(Any, device_put(x, sd.devices()[1])).signature
    signatures += [x.signature, elsewhere]
    requests = [None, whole, None, None]
    assert stated_shardings(signatures, requests) == (sharded, whole, None, None)
