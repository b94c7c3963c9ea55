"""Multi-host functions in a single process; tests/backends/distributed starts several."""

import numpy as np
import pytest

from shardir import numpy as snp
from shardir.experimental import multihost_utils
from shardir.frontend.errors import DistributedError
from shardir.frontend.shardings.mesh import make_mesh
from shardir.frontend.shardings.partition_spec import P


def test_functions_over_all_processes() -> None:
    x = snp.arange(4)
    np.testing.assert_array_equal(multihost_utils.process_allgather({"x": x})["x"], [[0, 1, 2, 3]])
    np.testing.assert_array_equal(multihost_utils.process_allgather(x, tiled=True), [0, 1, 2, 3])
    np.testing.assert_array_equal(multihost_utils.broadcast_one_to_all(x), [0, 1, 2, 3])
    multihost_utils.sync_global_devices("here")
    with pytest.raises(DistributedError) as caught:
        multihost_utils.broadcast_one_to_all(x, is_source=False)
    assert str(caught.value).partition("\n")[0] == (
        "broadcast_one_to_all has 0 sources; one process is the source"
    )


def test_process_local_data_becomes_one_global_array() -> None:
    mesh = make_mesh((2,), ("x",))
    made = multihost_utils.host_local_array_to_global_array(np.arange(4), mesh, P("x"))
    assert made.sharding.spec == P("x")
    np.testing.assert_array_equal(made, [0, 1, 2, 3])
