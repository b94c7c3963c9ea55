"""Rules of collectives, `shard_map` and sharding constraints."""

from typing import Any

from shardir.frontend import lax
from shardir.frontend.errors import ShardingError
from shardir.frontend.interop.rules import Equation, rule
from shardir.frontend.interop.shardings import constrained, mesh_of, spec_of
from shardir.frontend.locations import point
from shardir.frontend.mesh import Mesh
from shardir.frontend.shard_mapping import shard_map
from shardir.frontend.tracer import Tracer


@rule("sharding_constraint")
def _held(equation: Equation) -> Any:
    (x,) = equation.tracers
    free = tuple(sorted(equation.params.get("unconstrained_dims") or ()))
    return constrained(x, equation.params["sharding"], free)


@rule("reshard")
def _moved(equation: Equation) -> Any:
    (x,) = equation.tracers
    return constrained(x, equation.params["dst_sharding"])


@rule("shard_map")
def _mapped(equation: Equation) -> Any:
    params = equation.params
    mesh = mesh_of(params["mesh"])
    axes = params.get("newly_manual_axes", params.get("manual_axes"))
    if axes is None:
        axes = [name for name in mesh.axis_names if name not in params.get("auto", ())]
    names = [name for name in mesh.axis_names if name in axes]
    _check_sizes(params["mesh"], mesh, names)

    def local(*args: Tracer) -> Any:
        return tuple(equation.reader.read_open(params["jaxpr"], (), args))

    return shard_map(
        local,
        mesh,
        tuple(map(spec_of, params["in_specs"])),
        tuple(map(spec_of, params["out_specs"])),
        axis_names=names,
        check_vma=bool(params.get("check_vma", params.get("check_rep", True))),
    )(*equation.tracers)


def _check_sizes(jax_mesh: Any, mesh: Mesh, names: list[str]) -> None:
    """Raise `ShardingError` if the per-device program is written for another mesh."""
    expected = {name: int(jax_mesh.shape[name]) for name in names}
    if any(mesh.shape[name] != size for name, size in expected.items()):
        there, here = (
            ", ".join(f"{name}={each[name]}" for name in names) for each in (expected, mesh.shape)
        )
        raise ShardingError(
            point(
                f"shard_map of JAX over {there}, on a mesh of {here}; omit its mesh to use the "
                "current mesh"
            )
        )


def _axes(equation: Equation, key: str = "axes") -> Any:
    names = equation.params[key]
    return tuple(names) if isinstance(names, (tuple, list)) else names


def _groups(equation: Equation) -> Any:
    return equation.params.get("axis_index_groups")


def _reduction(name: str, reduce_dims: Any, reduce_axes: Any) -> None:
    def reduce(equation: Equation) -> Any:
        """Reduce over dimensions, which JAX's batching produces, and over named axes."""
        axes = _axes(equation)
        dims = tuple(axis for axis in axes if isinstance(axis, int))
        named = tuple(axis for axis in axes if not isinstance(axis, int))
        results = [reduce_dims(x, dims) if dims else x for x in equation.tracers]
        if not named:
            return results
        return [reduce_axes(x, named, axis_index_groups=_groups(equation)) for x in results]

    rule(name)(reduce)


_reduction("psum", lax.reduce_sum, lax.psum)
_reduction("psum_invariant", lax.reduce_sum, lax.psum)
_reduction("pmax", lax.reduce_max, lax.pmax)
_reduction("pmin", lax.reduce_min, lax.pmin)


@rule("ppermute")
def _permuted(equation: Equation) -> Any:
    axes = _axes(equation, "axis_name")
    return [lax.ppermute(x, axes, equation.params["perm"]) for x in equation.tracers]


@rule("all_gather", "all_gather_invariant")
def _gathered(equation: Equation) -> Any:
    params = equation.params
    return [
        lax.all_gather(
            x,
            _axes(equation, "axis_name"),
            axis_index_groups=_groups(equation),
            axis=params["all_gather_dimension"],
            tiled=params["tiled"],
        )
        for x in equation.tracers
    ]


@rule("reduce_scatter")
def _scattered(equation: Equation) -> Any:
    params = equation.params
    return [
        lax.psum_scatter(
            x,
            _axes(equation, "axis_name"),
            scatter_dimension=params["scatter_dimension"],
            axis_index_groups=_groups(equation),
            tiled=params["tiled"],
        )
        for x in equation.tracers
    ]


@rule("all_to_all")
def _exchanged(equation: Equation) -> Any:
    params = equation.params
    return [
        lax.all_to_all(
            x,
            _axes(equation, "axis_name"),
            params["split_axis"],
            params["concat_axis"],
            axis_index_groups=_groups(equation),
            tiled=params["tiled"],
        )
        for x in equation.tracers
    ]


@rule("axis_index")
def _position(equation: Equation) -> Any:
    return lax.axis_index(equation.params["axis_name"])


@rule("pvary")
def _varied(equation: Equation) -> Any:
    return [lax.pvary(x, _axes(equation)) for x in equation.tracers]


@rule("pcast")
def _cast(equation: Equation) -> Any:
    axes = _axes(equation, "axes" if "axes" in equation.params else "axis_name")
    return [lax.pcast(x, axes, to=equation.params.get("to", "varying")) for x in equation.tracers]
