"""Programs of collectives along all axes, for the IPU target."""

from collections.abc import Mapping
from typing import Any

import numpy as np

import shardir as sd
from shardir import lax
from shardir.sharding import PartitionSpec as P
from tests.backends.ipu.host_model_execution import Case
from tests.backends.ipu.model_steps import mesh_of, normal_array, put_on_mesh


def shard_map_case(
    mesh: Any, function: Any, ins: Any, outs: Any, *args: Any, **options: str
) -> Case:
    wrapped = sd.jit(
        sd.shard_map(function, mesh=mesh, in_specs=ins, out_specs=outs, check_vma=False)
    )
    return Case.of(wrapped.lower(*args), args, **options)


def collective_cases(strided: str) -> Mapping[str, Case]:
    mesh = mesh_of(2, 4)
    x = put_on_mesh(mesh, normal_array(16, 8), ("data", "model"))
    whole = np.random.default_rng(0).integers(-90, 90, (16,)).astype(np.int32)
    numbers = put_on_mesh(mesh, whole, ("data", "model"))

    def every(axes: Any) -> Any:
        return lambda x: (
            lax.psum(x, axes),
            lax.pmean(x, axes),
            lax.pmax(x, axes),
            lax.all_gather(x, axes),
            lax.axis_index(axes)[None],
        )

    def types(x: Any) -> Any:
        return (
            lax.psum(x, ("data", "model")),
            lax.pmax(x, "data"),
            lax.pmin(x.astype(np.uint32), "model"),
            lax.psum(x.astype(np.int8), "data"),
            lax.psum(x.astype(np.float16), "data"),
            lax.pmax(x > 0, "data"),
            lax.all_gather(x > 0, "data"),
        )

    cut = P(("data", "model"))
    axes: tuple[Any, ...] = ("data", "model", ("data", "model"), ("model", "data"))
    found = {
        f"along {names}": shard_map_case(mesh, every(names), cut, cut, x, strided=strided)
        for names in axes
    }
    rest = (P(), P("model"), P("data"), P("model"), P("model"), P("model"), P(None, "model"))
    found["types"] = shard_map_case(mesh, types, cut, rest, numbers, strided=strided)
    for names in ("data", "model"):

        def exchange(x: Any, names: Any = names) -> Any:
            return lax.all_to_all(x, names, 1, 0, tiled=True), lax.psum_scatter(
                x, names, tiled=True
            )

        found[f"exchange along {names}"] = shard_map_case(
            mesh,
            exchange,
            P(None, names),
            (P(names), P(names)),
            normal_array(4, 16),
            strided=strided,
        )
    return found
