"""`fwd_and_bwd`: the two passes of a derivative as separate compiled functions."""

from collections.abc import Callable, Sequence

from shardir.frontend.argument_checks import as_integer, as_items, check_integer
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.dispatch.jit import jit
from shardir.frontend.pytree.tree_checks import check_function
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.transforms.jvp_vjp import vjp
from shardir.frontend.transforms.pullback import Pullback


@with_argument_errors
def fwd_and_bwd(
    fun: UserFunction, argnums: int | Sequence[int], has_aux: bool = False, jitted: bool = True
) -> tuple[Callable[..., PyTree], Callable[..., PyTree]]:
    """Return the forward pass and the backward pass of `fun` as two functions.

    `forward(*args)` returns the results of `fun` and residuals, with `has_aux` also the auxiliary
    values. `backward(residuals, cotangents)` returns the gradients of the arguments `argnums`: one
    gradient for an integer, a tuple for a sequence. With `jitted`, both are compiled, so that a
    loop over steps compiles each of them once; `vjp` alone returns another function at each step.
    """
    check_function("fwd_and_bwd", fun)
    is_single = as_integer(argnums) is not None
    numbers = as_items(argnums)

    def forward(*args: PyTree) -> PyTree:
        places = [
            check_integer("argnums of fwd_and_bwd", n, -len(args), len(args) - 1) for n in numbers
        ]

        def of_differentiated(*differentiated: PyTree) -> PyTree:
            every = list(args)
            for place, value in zip(places, differentiated, strict=True):
                every[place] = value
            return fun(*every)

        return vjp(of_differentiated, *(args[place] for place in places), has_aux=has_aux)

    def backward(residuals: Pullback, cotangents: PyTree) -> PyTree:
        gradients = residuals(cotangents)
        return gradients[0] if is_single else gradients

    return (jit(forward), jit(backward)) if jitted else (forward, backward)
