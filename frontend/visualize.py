"""Drawings of shardings: one box for each shard of an array, labelled with its devices.

A value of rank 2 is drawn as a rectangle with about the proportions of its shape, at most 80
columns wide; a value of rank 1 as a row of boxes; a value of rank 0 as one box. The shards of
values of higher rank are listed, one per line.

On a terminal every box is colored by its devices; the text is the same without colors.
"""

import os
import sys
from collections.abc import Sequence
from itertools import product
from typing import Protocol, runtime_checkable

from shardir.frontend.argument_checks import canonicalize_shape
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.errors import ArgumentError, ShardingError
from shardir.frontend.quoting import brief_with_type
from shardir.frontend.shardings.sharding import Sharding
from shardir.frontend.shardings.sub_axes import num_shards
from shardir.frontend.source_locations import with_location

# A square is ten lines high, and a character is 2.5 times as high as it is wide. A box has at
# least 9 columns, including borders, and a drawing at most 80.
SQUARE_LINES = 10
COLUMNS_PER_TWO_LINES = 5
MIN_BOX_COLUMNS = 9
MAX_DRAWING_COLUMNS = 80

# Background colors of the xterm palette that are light enough for black text.
BOX_COLORS = (117, 215, 150, 218, 186, 147, 180, 159)

ASCII_TRANSLATION = str.maketrans({"─": "-", "│": "|", **dict.fromkeys("┌┬┐├┼┤└┴┘", "+")})
"""Translation of box-drawing characters for an output encoding without them, such as the C
locale's."""

GridPosition = tuple[int, ...]


@runtime_checkable
class ShardedValue(Protocol):
    """An object with a shape and a sharding."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def sharding(self) -> Sharding: ...


def visualize_array_sharding(array: object, *, use_color: bool | None = None) -> None:
    """Print the devices of the shards of `array`."""
    if not isinstance(array, ShardedValue) or not isinstance(array.sharding, Sharding):
        raise ShardingError(
            with_location(
                f"a value of type {type(array).__name__} is not placed on devices, so there is "
                "nothing to draw; place it with device_put"
            )
        )
    visualize_sharding(array.shape, array.sharding, use_color=use_color)


@with_argument_errors
def visualize_sharding(
    shape: Sequence[int], sharding: Sharding, *, use_color: bool | None = None
) -> None:
    """Print the devices of the shards of an array of `shape` with `sharding`.

    `use_color` defaults to true on a terminal unless `NO_COLOR` is set.
    """
    shape = canonicalize_shape(shape)
    if not isinstance(sharding, Sharding):
        raise ArgumentError(
            with_location(f"visualize_sharding takes a sharding, got {brief_with_type(sharding)}")
        )
    if use_color is None:
        use_color = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    drawing = draw_sharding(shape, sharding, colored=use_color)
    print(drawing if _is_encodable(drawing) else drawing.translate(ASCII_TRANSLATION))


def _is_encodable(text: str) -> bool:
    """Return whether standard output can encode a text."""
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def draw_sharding(shape: Sequence[int], sharding: Sharding, *, colored: bool = False) -> str:
    """Return the drawing as text, without a final line break."""
    labels = label_shards(sharding, len(shape))
    if len(shape) > 2:
        return _list_shards(shape, sharding, labels)
    rows, columns = [1, 1, *(num_shards(axes) for axes in sharding.resolved_sub_axes(len(shape)))][
        -2:
    ]
    flat = list(labels.values())
    grid = [flat[row * columns : (row + 1) * columns] for row in range(rows)]
    box_width, lines = _box_size(shape, rows, columns)
    widths = [max(box_width, *map(len, column)) for column in zip(*grid, strict=True)]
    room = MAX_DRAWING_COLUMNS - columns - 1
    if sum(widths) > room:
        widths, grid = _shrink_boxes(widths, grid, box_width, room)
    return _draw_boxes(grid, widths, lines, colored)


def label_shards(sharding: Sharding, rank: int) -> dict[GridPosition, str]:
    """Return the devices of each shard by its position in the grid of shards, in row-major
    order."""
    ids: dict[GridPosition, list[int]] = {
        place: []
        for place in product(
            *(range(num_shards(axes)) for axes in sharding.resolved_sub_axes(rank))
        )
    }
    for device, place in zip(
        sharding.device_assignment, sharding.shard_positions(rank), strict=True
    ):
        ids[place].append(device.id)
    platform = sharding.device_assignment[0].platform.upper()
    return {place: f"{platform} {','.join(map(str, sorted(i)))}" for place, i in ids.items()}


def _box_size(shape: Sequence[int], rows: int, columns: int) -> tuple[int, int]:
    """Return the number of columns and lines inside the borders of a box."""
    if len(shape) < 2:
        return MIN_BOX_COLUMNS - 2, 1
    height, width = shape
    square = SQUARE_LINES * width // height if height else SQUARE_LINES
    share = square * COLUMNS_PER_TWO_LINES // (2 * columns)
    return min(max(share, MIN_BOX_COLUMNS), MAX_DRAWING_COLUMNS) - 2, max(
        SQUARE_LINES // rows - 1, 1
    )


def _shrink_boxes(
    widths: list[int], grid: list[list[str]], box_width: int, room: int
) -> tuple[list[int], list[list[str]]]:
    """Return the widths and labels of boxes that share `room` evenly, each wide enough for its
    label.

    Labels are omitted where the requested space around each label exceeds the width of its box. JAX
    does the same for very wide values.
    """
    share, rest = divmod(room, len(widths))
    narrow = [share + (column < rest) for column in range(len(widths))]
    if all(
        box_width - len(label) >= width
        for row in grid
        for label, width in zip(row, narrow, strict=True)
    ):
        return narrow, [[""] * len(widths) for _ in grid]
    longest = [max(map(len, column)) for column in zip(*grid, strict=True)]
    return list(map(max, narrow, longest)), grid


def _draw_boxes(grid: list[list[str]], widths: list[int], lines: int, colored: bool) -> str:
    bars = ["─" * width for width in widths]
    blank = [" " * width for width in widths]
    drawn = ["┌" + "┬".join(bars) + "┐"]
    for row in grid:
        if len(drawn) > 1:
            drawn.append("├" + "┼".join(bars) + "┤")
        middle = [_center(label, width) for label, width in zip(row, widths, strict=True)]
        for line in range(lines):
            texts = middle if line == (lines - 1) // 2 else blank
            if colored:
                texts = [_color(text, row[column]) for column, text in enumerate(texts)]
            drawn.append("│" + "│".join(texts) + "│")
    drawn.append("└" + "┴".join(bars) + "┘")
    return "\n".join(drawn)


def _center(label: str, width: int) -> str:
    """Return `label` centered in `width` columns, with an odd space on the right."""
    return (" " * ((width - len(label)) // 2) + label).ljust(width)


def _color(text: str, label: str) -> str:
    """Return `text` on a background color chosen by the first device of its box."""
    first = label.partition(" ")[2].partition(",")[0]
    colour = BOX_COLORS[int(first or 0) % len(BOX_COLORS)]
    return f"\x1b[30;48;5;{colour}m{text}\x1b[0m"


def _list_shards(shape: Sequence[int], sharding: Sharding, labels: dict[GridPosition, str]) -> str:
    counts = [num_shards(axes) for axes in sharding.resolved_sub_axes(len(shape))]

    def index(at: int, size: int, count: int) -> str:
        # Uneven shard sizes are rounded up, and the last shards are shorter.
        part = -(-size // count)
        return ":" if count == 1 else f"{min(at * part, size)}:{min((at + 1) * part, size)}"

    texts = [f"[{', '.join(map(index, place, shape, counts))}]" for place in labels]
    width = max(map(len, texts))
    return "\n".join(
        f"{text.ljust(width)}  {label}" for text, label in zip(texts, labels.values(), strict=True)
    )
