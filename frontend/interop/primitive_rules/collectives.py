"""Rules of collectives, `shard_map` and sharding constraints."""

from collections.abc import Callable

import jax

from shardir.frontend.errors import ShardingError
from shardir.frontend.interop.jax_shardings import constrain_as_jax, convert_mesh, convert_spec
from shardir.frontend.interop.primitive_rules.registry import Equation, RuleResult, register_rule
from shardir.frontend.lax import reductions
from shardir.frontend.lax.collective_ops import collectives, ragged_exchange
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.shardings.mesh import Mesh
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.transforms.manual.shard_map import shard_map


@register_rule("sharding_constraint")
def _apply_sharding_constraint(equation: Equation) -> Tracer:
    (x,) = equation.tracers
    free = tuple(sorted(equation.params.get("unconstrained_dims") or ()))
    return constrain_as_jax(x, equation.params["sharding"], free)


@register_rule("reshard")
def _apply_reshard(equation: Equation) -> Tracer:
    (x,) = equation.tracers
    return constrain_as_jax(x, equation.params["dst_sharding"])


@register_rule("shard_map")
def _apply_shard_map(equation: Equation) -> PyTree:
    params = equation.params
    mesh = convert_mesh(params["mesh"])
    axes = params.get("newly_manual_axes", params.get("manual_axes"))
    if axes is None:
        axes = [name for name in mesh.axis_names if name not in params.get("auto", ())]
    names = [name for name in mesh.axis_names if name in axes]
    _check_mesh_sizes(params["mesh"], mesh, names)

    def local(*args: Tracer) -> tuple[Tracer, ...]:
        return tuple(equation.reader.read_open(params["jaxpr"], (), args))

    return shard_map(
        local,
        mesh,
        tuple(map(convert_spec, params["in_specs"])),
        tuple(map(convert_spec, params["out_specs"])),
        axis_names=names,
        check_vma=bool(params.get("check_vma", params.get("check_rep", True))),
    )(*equation.tracers)


def _check_mesh_sizes(jax_mesh: jax.sharding.Mesh, mesh: Mesh, names: list[str]) -> None:
    """Raise `ShardingError` if the per-device program is written for another mesh."""
    expected = {name: int(jax_mesh.shape[name]) for name in names}
    if any(mesh.shape[name] != size for name, size in expected.items()):
        there, here = (
            ", ".join(f"{name}={each[name]}" for name in names) for each in (expected, mesh.shape)
        )
        raise ShardingError(
            with_location(
                f"shard_map of JAX over {there}, on a mesh of {here}; omit its mesh to use the "
                "current mesh"
            )
        )


def _axis_names(equation: Equation, key: str = "axes") -> collectives.AxisName:
    names: collectives.AxisName = equation.params[key]
    return tuple(names) if isinstance(names, (tuple, list)) else names


def _axis_groups(equation: Equation) -> collectives.Groups:
    groups: collectives.Groups = equation.params.get("axis_index_groups")
    return groups


def _register_reduction(
    name: str, reduce_dims: Callable[..., Tracer], reduce_axes: Callable[..., Tracer]
) -> None:
    def reduce(equation: Equation) -> RuleResult:
        """Reduce over dimensions, which JAX's batching produces, and over named axes."""
        axes = _axis_names(equation)
        dims = tuple(axis for axis in axes if isinstance(axis, int))
        named = tuple(axis for axis in axes if not isinstance(axis, int))
        results = [reduce_dims(x, dims) if dims else x for x in equation.tracers]
        if not named:
            return results
        return [reduce_axes(x, named, axis_index_groups=_axis_groups(equation)) for x in results]

    register_rule(name)(reduce)


_register_reduction("psum", reductions.reduce_sum, collectives.psum)
_register_reduction("psum_invariant", reductions.reduce_sum, collectives.psum)
_register_reduction("pmax", reductions.reduce_max, collectives.pmax)
_register_reduction("pmin", reductions.reduce_min, collectives.pmin)


@register_rule("ppermute")
def _apply_ppermute(equation: Equation) -> RuleResult:
    axes = _axis_names(equation, "axis_name")
    return [collectives.ppermute(x, axes, equation.params["perm"]) for x in equation.tracers]


@register_rule("all_gather", "all_gather_invariant")
def _apply_all_gather(equation: Equation) -> RuleResult:
    params = equation.params
    return [
        collectives.all_gather(
            x,
            _axis_names(equation, "axis_name"),
            axis_index_groups=_axis_groups(equation),
            axis=params["all_gather_dimension"],
            tiled=params["tiled"],
        )
        for x in equation.tracers
    ]


@register_rule("reduce_scatter")
def _apply_reduce_scatter(equation: Equation) -> RuleResult:
    params = equation.params
    return [
        collectives.psum_scatter(
            x,
            _axis_names(equation, "axis_name"),
            scatter_dimension=params["scatter_dimension"],
            axis_index_groups=_axis_groups(equation),
            tiled=params["tiled"],
        )
        for x in equation.tracers
    ]


@register_rule("all_to_all")
def _apply_all_to_all(equation: Equation) -> RuleResult:
    params = equation.params
    return [
        collectives.all_to_all(
            x,
            _axis_names(equation, "axis_name"),
            params["split_axis"],
            params["concat_axis"],
            axis_index_groups=_axis_groups(equation),
            tiled=params["tiled"],
        )
        for x in equation.tracers
    ]


@register_rule("pbroadcast")
def _apply_pbroadcast(equation: Equation) -> RuleResult:
    axes, source = _axis_names(equation, "axis_name"), equation.params["source"]
    return [collectives.pbroadcast(x, axes, source) for x in equation.tracers]


@register_rule("ragged_all_to_all")
def _apply_ragged_all_to_all(equation: Equation) -> PyTree:
    return ragged_exchange.ragged_all_to_all(
        *equation.tracers,
        axis_name=_axis_names(equation, "axis_name"),
        axis_index_groups=_axis_groups(equation),
    )


@register_rule("axis_index")
def _apply_axis_index(equation: Equation) -> Tracer:
    return collectives.axis_index(equation.params["axis_name"])


@register_rule("pvary")
def _apply_pvary(equation: Equation) -> RuleResult:
    return [collectives.pvary(x, _axis_names(equation)) for x in equation.tracers]


@register_rule("pcast")
def _apply_pcast(equation: Equation) -> RuleResult:
    axes = _axis_names(equation, "axes" if "axes" in equation.params else "axis_name")
    return [
        collectives.pcast(x, axes, to=equation.params.get("to", "varying"))
        for x in equation.tracers
    ]
