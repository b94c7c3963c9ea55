"""The parameters of JAX's public functions that shardir's do not have, each with the reason."""

import warnings
from collections.abc import Iterator
from importlib import import_module
from inspect import Parameter, Signature, signature

from tests.jax_namespace import COMPARED, public_names

SKIPPED = ("jax.errors", "jax.stages", "jax.typing")
"""Modules of classes that programs do not construct."""
_VARIADIC = (Parameter.VAR_KEYWORD, Parameter.VAR_POSITIONAL)
_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)

REASONS = {
    "JAX refuses every value but the default.": """
        jax.grad(reduce_axes) jax.linear_transpose(reduce_axes) jax.value_and_grad(reduce_axes)
        jax.vjp(reduce_axes) jax.lax.ragged_dot(group_offset) jax.numpy.add(out)
        jax.numpy.add(where) jax.numpy.bitwise_and(out) jax.numpy.bitwise_and(where)
        jax.numpy.bitwise_or(out) jax.numpy.bitwise_or(where) jax.numpy.bitwise_xor(out)
        jax.numpy.bitwise_xor(where) jax.numpy.logaddexp(out) jax.numpy.logaddexp(where)
        jax.numpy.logaddexp2(out) jax.numpy.logaddexp2(where) jax.numpy.logical_and(out)
        jax.numpy.logical_and(where) jax.numpy.logical_or(out) jax.numpy.logical_or(where)
        jax.numpy.logical_xor(out) jax.numpy.logical_xor(where) jax.numpy.maximum(out)
        jax.numpy.maximum(where) jax.numpy.minimum(out) jax.numpy.minimum(where)
        jax.numpy.multiply(out) jax.numpy.multiply(where) jax.numpy.negative(out)
        jax.numpy.negative(where) jax.numpy.subtract(out) jax.numpy.subtract(where)
    """,
    "The argument is positional; its name is that of the setting.": """
        jax.check_tracer_leaks(new_val) jax.debug_infs(new_val) jax.debug_nans(new_val)
        jax.default_device(new_val)
        jax.default_matmul_precision(new_val)
        jax.default_prng_impl(new_val) jax.enable_custom_prng(new_val) jax.enable_x64(new_val)
        jax.legacy_prng_key(new_val) jax.log_compiles(new_val)
        jax.threefry_partitionable(new_val)
    """,
    "The argument is positional.": """
        jax.Array.view(type)
        jax.dtypes.issubdtype(a) jax.dtypes.issubdtype(b)
        jax.custom_derivatives.custom_vjp_primal_tree_values(tree)
        jax.debug.visualize_array_sharding(arr) jax.tree.broadcast(prefix_tree)
        jax.tree.broadcast(full_tree) jax.tree.map(f) jax.tree.map_with_path(f)
        jax.tree.transpose(outer_treedef) jax.tree.transpose(inner_treedef)
        jax.tree.transpose(pytree_to_transpose) jax.tree.unflatten(treedef)
        jax.tree_util.flatten_one_level(tree) jax.tree_util.flatten_one_level_with_keys(tree)
        jax.tree_util.is_tree_node(typ) jax.tree_util.register_dataclass(nodetype)
        jax.tree_util.tree_broadcast(prefix_tree) jax.tree_util.tree_broadcast(full_tree)
        jax.tree_util.tree_map(f) jax.tree_util.tree_map_with_path(f)
        jax.tree_util.tree_transpose(outer_treedef) jax.tree_util.tree_transpose(inner_treedef)
        jax.tree_util.tree_transpose(pytree_to_transpose) jax.dlpack.from_dlpack(external_array)
    """,
    "JAX deprecates the parameter.": """
        jax.local_devices(host_id)
    """,
    "A derivative with respect to integers is an error; `grad` alone returns empty ones.": """
        jax.jacobian(allow_int) jax.jacrev(allow_int)
    """,
    "JAX does not document the parameter.": """
        jax.vmap(sum_match)
    """,
    "Derivatives of eigenvectors of general matrices are an error.": """
        jax.lax.linalg.eig(enable_eigvec_derivs)
    """,
    "A singular system has infinite results.": """
        jax.lax.linalg.tridiagonal_solve(perturb_singular)
    """,
    "The drawing has cells of one size and the colors of the terminal.": """
        jax.debug.visualize_sharding(scale) jax.debug.visualize_sharding(min_width)
        jax.debug.visualize_sharding(max_width) jax.debug.visualize_sharding(color_map)
    """,
    "Element types of the program are not weak, and keys are the only extended ones.": """
        jax.dtypes.result_type(return_weak_type_flag)
        jax.dtypes.canonicalize_dtype(allow_extended_dtype)
    """,
}
"""The parameters that are absent on purpose."""


def reasons() -> set[str]:
    """Return the parameters for which the table states a reason."""
    return {name for names in REASONS.values() for name in names.split()}


def missing_parameters() -> set[str]:
    """Return the public parameters of JAX's functions that those of shardir do not have."""
    return {
        f"{place}({name})"
        for place, theirs, ours in _signatures()
        if Parameter.VAR_KEYWORD not in [each.kind for each in ours.parameters.values()]
        for name, each in theirs.parameters.items()
        if name not in ours.parameters
        and not name.startswith("_")
        and each.kind not in (*_VARIADIC, Parameter.POSITIONAL_ONLY)
    }


def moved_parameters() -> set[str]:
    """Return the parameters of JAX that shardir's functions have at another position."""
    moved = set()
    for place, theirs, ours in _signatures():
        own = [name for name, each in ours.parameters.items() if each.kind in _POSITIONAL]
        for position, (name, each) in enumerate(theirs.parameters.items()):
            if each.kind in _POSITIONAL and name in own and own.index(name) != position:
                moved.add(f"{place}({name})")
    return moved


def _signatures() -> Iterator[tuple[str, Signature, Signature]]:
    for module in COMPARED:
        if module in SKIPPED:
            continue
        try:
            here = import_module(module.replace("jax", "shardir", 1))
        except ImportError:
            continue
        theirs = import_module(module)
        for name in public_names(module):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                given, own = getattr(theirs, name), getattr(here, name, None)
            if isinstance(given, type) or not callable(given) or not callable(own):
                continue
            try:
                yield f"{module}.{name}", signature(given), signature(own)
            except (TypeError, ValueError):
                continue  # Objects without a signature.
    yield from _method_signatures()


def _method_signatures() -> Iterator[tuple[str, Signature, Signature]]:
    """Yield the signatures of the methods of arrays; the parameters of JAX's are those of tracers,
    too."""
    theirs, ours = import_module("jax").Array, import_module("shardir").Array
    for name in dir(theirs):
        given, own = getattr(theirs, name), getattr(ours, name, None)
        if not name.startswith("_") and callable(given) and callable(own):
            yield f"jax.Array.{name}", signature(given), signature(own)
