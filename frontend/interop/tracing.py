"""Asking JAX for the program of a function, under our settings."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import jax
import numpy as np

from shardir.frontend.config import config
from shardir.frontend.mesh import Mesh, current_mesh
from shardir.frontend.tracer import Tracer


@contextmanager
def our_settings() -> Iterator[None]:
    """Inside, JAX has the settings that are ours, and knows the mesh that has been entered.

    One that JAX has been given stays, with what it says of its axes, if it has the same axes.
    """
    with ExitStack() as stack:
        stack.enter_context(jax.enable_x64(config.enable_x64))
        stack.enter_context(jax.threefry_partitionable(config.threefry_partitionable))
        mesh = current_mesh()
        theirs = jax.sharding.get_abstract_mesh()
        if isinstance(mesh, Mesh) and (theirs.empty or dict(theirs.shape) != mesh.shape):
            stack.enter_context(
                jax.sharding.use_abstract_mesh(
                    jax.sharding.AbstractMesh(mesh.axis_sizes, mesh.axis_names)
                )
            )
        yield


def program_of(fun: Callable[..., Any], structs: Sequence[Any]) -> tuple[Any, Any]:
    """The program of `fun` for arguments like `structs`, and its results' containers of structs.

    JAX wants a mesh that a program names to be the one that is entered, down to the kind of its
    devices. Ours has none, so a program that JAX refuses for that is traced with those of JAX's
    own meshes, and then without a mesh around it, which allows any other.
    """
    with our_settings():
        try:
            return _traced(fun, structs)
        except ValueError as error:
            if "ontext mesh" not in str(error):
                raise
            refused = error
        for mesh in _other_forms(jax.sharding.get_abstract_mesh()):
            try:
                with jax.sharding.use_abstract_mesh(mesh):
                    return _traced(fun, structs)
            except ValueError as error:
                if "ontext mesh" not in str(error):
                    raise
        raise refused


def _traced(fun: Callable[..., Any], structs: Sequence[Any]) -> tuple[Any, Any]:
    program, results = jax.make_jaxpr(fun, return_shape=True)(*structs)
    return program, results


def _other_forms(mesh: Any) -> Iterator[Any]:
    """The mesh as one of devices such as JAX has here, and none."""
    one = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("one",)).abstract_mesh
    device = getattr(one, "abstract_device", None)
    if device is not None and not mesh.empty:
        yield jax.sharding.AbstractMesh(
            mesh.axis_sizes, mesh.axis_names, mesh.axis_types, abstract_device=device
        )
    yield jax.sharding.AbstractMesh((), ())


def struct_of(x: Tracer) -> Any:
    """What JAX traces with in the place of `x`."""
    if x.value.type.dtype == "key":
        return jax.ShapeDtypeStruct(x.shape, jax.random.key(0).dtype)
    return jax.ShapeDtypeStruct(x.shape, x.dtype, weak_type=x.weak_type)
