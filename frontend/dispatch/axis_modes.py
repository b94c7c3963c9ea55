"""`auto_axes` and `explicit_axes`: functions inside of which mesh axes have another type.

Outside of a trace, such a function is compiled as one program, as with `jit`.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.dispatch.jit import jit
from shardir.frontend.errors import ShardingError
from shardir.frontend.pytree import tree
from shardir.frontend.pytree.tree_checks import check_function
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.shardings.axis_type import AxisType
from shardir.frontend.shardings.mesh import (
    Mesh,
    current_mesh,
    entered_meshes,
    set_entered_meshes,
)
from shardir.frontend.shardings.partition_spec import PartitionSpec
from shardir.frontend.shardings.requested_sharding import is_sharding_request
from shardir.frontend.shardings.resharding import apply_out_sharding, apply_shardings
from shardir.frontend.shardings.sharding import NamedSharding
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracebacks import traceback_boundary
from shardir.frontend.tracing.trace import current_trace, require_sharding_types, require_trace
from shardir.frontend.wrappers import wraps

AxisNames = str | Collection[str] | None


@with_argument_errors
def auto_axes(
    f: UserFunction | None = None, /, *, axes: AxisNames = None, out_sharding: object = None
) -> PyTree:
    """Return `f`, inside of which the compiler determines shardings along `axes`, by default all.

    The types of values inside do not contain these axes. `out_sharding` states the shardings of the
    results; a call may state it too. May be used as a decorator.
    """
    if f is None:
        return lambda f: auto_axes(f, axes=axes, out_sharding=out_sharding)
    check_function("auto_axes", f)
    given = out_sharding

    @traceback_boundary
    @wraps(f)
    def wrapper(*args: PyTree, out_sharding: object = given, **options: PyTree) -> PyTree:
        if current_trace() is None and _uses_explicit_axes(args, options):
            # A callee without arguments of its own is traced at every call.
            return jit(lambda *a, **o: wrapper(*a, out_sharding=out_sharding, **o))(
                *args, **options
            )
        trace = current_trace()
        types = None if trace is None else trace.program.sharding_types
        if types is None:
            mesh = _mesh_of_shardings(out_sharding) or current_mesh()
            # As in JAX, a function on Auto axes only does not change.
            is_explicit = mesh is not None and mesh.has_explicit_axes
            return apply_out_sharding(f(*args, **options), out_sharding if is_explicit else None)
        names = _as_names(axes)
        with types.use_auto_axes(names), _enter_mesh(types.mesh, names, AxisType.Auto):
            made = f(*args, **options)
        return apply_out_sharding(made, out_sharding)

    return wrapper


@with_argument_errors
def explicit_axes(
    f: UserFunction | None = None, /, *, axes: AxisNames = None, in_sharding: object = None
) -> PyTree:
    """Return `f`, inside of which the shardings along `axes`, by default all, are part of types.

    `in_sharding`, a pytree prefix of the tuple of positional arguments, states the shardings of the
    arguments; a call may state it too. May be used as a decorator.
    """
    if f is None:
        return lambda f: explicit_axes(f, axes=axes, in_sharding=in_sharding)
    check_function("explicit_axes", f)
    given = in_sharding

    @traceback_boundary
    @wraps(f)
    def wrapper(*args: PyTree, in_sharding: object = given, **options: PyTree) -> PyTree:
        if current_trace() is None:
            return jit(lambda *a, **o: wrapper(*a, in_sharding=in_sharding, **o))(*args, **options)
        mesh = _mesh_of_shardings(in_sharding) or current_mesh()
        if mesh is None:
            raise ShardingError(
                with_location(
                    "explicit_axes has no mesh; call it inside `with mesh:`, or give in_sharding= "
                    "NamedShardings"
                )
            )
        names = _as_names(axes)
        program = require_trace("explicit_axes").program
        inner = _change_types(mesh, names, AxisType.Explicit)
        is_new = program.sharding_types is None
        types = require_sharding_types(program, NamedSharding(inner, PartitionSpec()))
        if is_new:
            types.leave_explicit_mode()
        with types.use_explicit_axes(names), _enter_mesh(mesh, names, AxisType.Explicit):
            if in_sharding is not None:
                stated = _on_mesh(inner, in_sharding)
                args = apply_shardings(args, stated, "in_sharding of explicit_axes")
            return f(*args, **options)

    return wrapper


def _as_names(axes: AxisNames) -> tuple[str, ...] | None:
    if axes is None:
        return None
    return (axes,) if isinstance(axes, str) else tuple(axes)


def _uses_explicit_axes(args: PyTree, options: PyTree) -> bool:
    mesh = current_mesh()
    if mesh is not None and mesh.has_explicit_axes:
        return True
    shardings = [getattr(leaf, "sharding", None) for leaf in tree.leaves((args, options))]
    return any(getattr(sharding, "has_explicit_axes", False) for sharding in shardings)


def _mesh_of_shardings(shardings: object) -> Mesh | None:
    leaves = tree.leaves(shardings, is_leaf=is_sharding_request)
    return next((leaf.mesh for leaf in leaves if isinstance(leaf, NamedSharding)), None)


def _on_mesh(mesh: Mesh, shardings: object) -> PyTree:
    """Return the shardings with `mesh`, which has other types of axes."""
    return tree.map(
        lambda each: NamedSharding(mesh, each.spec) if isinstance(each, NamedSharding) else each,
        shardings,
        is_leaf=is_sharding_request,
    )


def _change_types(mesh: Mesh, names: tuple[str, ...] | None, kind: AxisType) -> Mesh:
    """Return the mesh with the type `kind` for the axes `names`, by default all."""
    chosen = mesh.axis_names if names is None else names
    return mesh.update_axis_types(dict.fromkeys(chosen, kind))


@contextmanager
def _enter_mesh(mesh: Mesh, names: tuple[str, ...] | None, kind: AxisType) -> Iterator[None]:
    before = entered_meshes()
    set_entered_meshes((*before, _change_types(mesh, names, kind)))
    try:
        yield
    finally:
        set_entered_meshes(before)
