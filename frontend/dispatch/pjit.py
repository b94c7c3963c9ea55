"""`pjit`: the former name of `jit` for sharded arrays, with its former keywords."""

from shardir.frontend.dispatch.jit import jit
from shardir.frontend.dispatch.jit_function import JitFunction
from shardir.frontend.errors import ArgumentError
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.source_locations import with_location


def pjit(
    fun: UserFunction,
    in_shardings: object = None,
    out_shardings: object = None,
    *,
    in_axis_resources: object = None,
    out_axis_resources: object = None,
    **options: PyTree,
) -> JitFunction:
    """Return `jit(fun)`, and accept its shardings as `in_axis_resources` and `out_axis_resources`
    too."""
    return jit(
        fun,
        in_shardings=_merge_keywords("in", in_shardings, in_axis_resources),
        out_shardings=_merge_keywords("out", out_shardings, out_axis_resources),
        **options,
    )


def _merge_keywords(side: str, shardings: object, resources: object) -> object:
    if shardings is not None and resources is not None:
        raise ArgumentError(
            with_location(
                f"{side}_shardings and {side}_axis_resources are the same option; pass one"
            )
        )
    return resources if shardings is None else shardings
