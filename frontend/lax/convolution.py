"""Convolution and pooling under the names of `jax.lax`."""

from collections.abc import Sequence
from typing import Any

from shardir.errors import OperationTypeError
from shardir.frontend.eager import public
from shardir.frontend.locations import point
from shardir.frontend.operands import as_tracer
from shardir.frontend.promotion import dtype_of
from shardir.frontend.trace import emit
from shardir.types import TensorType

Pads = tuple[tuple[int, int], ...]


def _pads(
    padding: Any, sizes: Sequence[int], windows: Sequence[int], strides: Sequence[int]
) -> Pads:
    """Explicit padding: "VALID" is none, "SAME" as much as keeps ceil(size / stride)."""
    if not isinstance(padding, str):
        return tuple((int(low), int(high)) for low, high in padding)
    kind = padding.upper()
    if kind == "VALID":
        return ((0, 0),) * len(sizes)
    if kind not in ("SAME", "SAME_LOWER"):
        raise OperationTypeError(
            point(f"padding {padding!r} is unknown; it is 'SAME', 'SAME_LOWER', 'VALID' or pairs")
        )
    pads = []
    for size, window, stride in zip(sizes, windows, strides, strict=True):
        total = max((-(-size // stride) - 1) * stride + window - size, 0)
        less, more = total // 2, total - total // 2
        pads.append((less, more) if kind == "SAME" else (more, less))
    return tuple(pads)


def _dims(numbers: Any, rank: int) -> str:
    """`b01f,01io->b01f` from JAX's dimension numbers: strings such as ("NHWC", "HWIO", "NHWC")."""
    spatial = rank - 2
    digits = "".join(map(str, range(spatial)))
    if numbers is None:
        return f"bf{digits},oi{digits}->bf{digits}"
    if isinstance(numbers[0], str):
        # Spatial dimensions are whatever letters are left, in the order of the kernel's.
        names = [c for c in numbers[1] if c not in "IO"]
        table = {c: str(i) for i, c in enumerate(names)}
        lhs, rhs, out = (
            "".join(table.get(c, {"N": "b", "C": "f", "I": "i", "O": "o"}.get(c, c)) for c in n)
            for n in numbers
        )
        return f"{lhs},{rhs}->{out}"
    terms = []
    for spec, (first, second) in zip(numbers, ("bf", "oi", "bf"), strict=True):
        term = [""] * rank
        term[spec[0]], term[spec[1]] = first, second
        for i, at in enumerate(spec[2:]):
            term[at] = str(i)
        terms.append("".join(term))
    return f"{terms[0]},{terms[1]}->{terms[2]}"


def _dilated(sizes: Sequence[int], dilation: Sequence[int]) -> list[int]:
    return [(size - 1) * by + 1 for size, by in zip(sizes, dilation, strict=True)]


@public(
    static=(
        "window_strides",
        "padding",
        "lhs_dilation",
        "rhs_dilation",
        "dimension_numbers",
        "feature_group_count",
        "batch_group_count",
        "precision",
        "preferred_element_type",
    )
)
def conv_general_dilated(
    lhs: Any,
    rhs: Any,
    window_strides: Any,
    padding: Any,
    lhs_dilation: Any = None,
    rhs_dilation: Any = None,
    dimension_numbers: Any = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Any:
    """A convolution of any number of spatial dimensions, strides, dilations and groups.

    `dimension_numbers` are three strings such as ("NHWC", "HWIO", "NHWC") or three tuples of
    (batch, feature, spatial...) positions; `padding` is "SAME", "VALID" or (low, high) pairs.
    """
    x, w = as_tracer(lhs), as_tracer(rhs)
    dims = _dims(dimension_numbers, x.ndim)
    inputs, _ = dims.split("->")
    left, right = inputs.split(",")
    spatial = [str(i) for i in range(x.ndim - 2)]
    strides = tuple(window_strides)
    spread_x = tuple(lhs_dilation or (1,) * len(spatial))
    spread_w = tuple(rhs_dilation or (1,) * len(spatial))
    sizes = [(x.shape[left.index(d)] - 1) * s + 1 for d, s in zip(spatial, spread_x, strict=True)]
    windows = [
        (w.shape[right.index(d)] - 1) * s + 1 for d, s in zip(spatial, spread_w, strict=True)
    ]
    wanted = {}
    if preferred_element_type is not None:
        wanted["result"] = TensorType((), dtype_of(preferred_element_type))
    return emit(
        "convolution",
        x,
        w,
        strides=strides,
        padding=_pads(padding, sizes, windows, strides),
        lhs_dilation=spread_x,
        rhs_dilation=spread_w,
        dims=dims,
        groups=feature_group_count,
        batch_groups=batch_group_count,
        **wanted,
    )


@public(static=("window_strides", "padding"))
def conv(lhs: Any, rhs: Any, window_strides: Any, padding: Any) -> Any:
    """A convolution of batch-feature-spatial by out-in-spatial."""
    return conv_general_dilated(lhs, rhs, window_strides, padding)
