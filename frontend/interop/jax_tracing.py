"""Tracing of functions by JAX under the settings of shardir."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import jax
import numpy as np
from jax.extend import core

from shardir.frontend.config import config
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.shardings.mesh import Mesh, current_mesh
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.key_implementations import KEY_IMPLEMENTATIONS


@contextmanager
def apply_settings_to_jax() -> Iterator[None]:
    """Apply the settings and the current mesh of shardir to JAX in a context.

    A mesh that is already set in JAX is kept, with its axis types, if it has the same axes.
    """
    with ExitStack() as stack:
        stack.enter_context(jax.enable_x64(config.enable_x64))
        stack.enter_context(jax.threefry_partitionable(config.threefry_partitionable))
        mesh = current_mesh()
        jax_mesh = jax.sharding.get_abstract_mesh()
        if isinstance(mesh, Mesh) and (jax_mesh.empty or dict(jax_mesh.shape) != mesh.shape):
            stack.enter_context(
                jax.sharding.use_abstract_mesh(
                    jax.sharding.AbstractMesh(mesh.axis_sizes, mesh.axis_names)
                )
            )
        yield


def trace_to_jaxpr(fun: UserFunction, structs: Sequence[PyTree]) -> tuple[core.ClosedJaxpr, PyTree]:
    """Return the jaxpr of `fun` for arguments like `structs`, and the structs of its results.

    JAX requires that a mesh in a program equals the current mesh, including the kind of its
    devices. The mesh of shardir has no such kind, so that a program that JAX refuses for this
    reason is traced again with the device kind of JAX's own meshes, and finally without a current
    mesh.
    """
    with apply_settings_to_jax():
        try:
            return _make_jaxpr(fun, structs)
        except ValueError as error:
            if "ontext mesh" not in str(error):
                raise
            refused = error
        for mesh in _mesh_variants(jax.sharding.get_abstract_mesh()):
            try:
                with jax.sharding.use_abstract_mesh(mesh):
                    return _make_jaxpr(fun, structs)
            except ValueError as error:
                if "ontext mesh" not in str(error):
                    raise
        raise refused


def _make_jaxpr(fun: UserFunction, structs: Sequence[PyTree]) -> tuple[core.ClosedJaxpr, PyTree]:
    program, results = jax.make_jaxpr(fun, return_shape=True)(*structs)
    return program, results


def _mesh_variants(mesh: jax.sharding.AbstractMesh) -> Iterator[jax.sharding.AbstractMesh]:
    """Yield the mesh with the device kind of this JAX, and an empty mesh."""
    one = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("one",)).abstract_mesh
    device = getattr(one, "abstract_device", None)
    if device is not None and not mesh.empty:
        yield jax.sharding.AbstractMesh(
            mesh.axis_sizes, mesh.axis_names, mesh.axis_types, abstract_device=device
        )
    yield jax.sharding.AbstractMesh((), ())


def jax_struct_of(x: Tracer) -> jax.ShapeDtypeStruct:
    """Return the `ShapeDtypeStruct` with which JAX traces in place of `x`."""
    if (kind := KEY_IMPLEMENTATIONS.get(x.value.type.dtype)) is not None:
        return jax.ShapeDtypeStruct(x.shape, jax.random.key_dtype(kind.name))
    return jax.ShapeDtypeStruct(x.shape, x.dtype, weak_type=x.weak_type)
