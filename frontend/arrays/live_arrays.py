"""`live_arrays`: the arrays that exist in this process."""

import gc

from shardir.display.byte_sizes import show_bytes
from shardir.display.program_html import report_html
from shardir.display.representation import abbreviate
from shardir.display.text_tables import align_columns
from shardir.errors import count_noun
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.arrays.array import Array


class LiveArrays(list[Array]):
    """Arrays, the largest first. A REPL and a notebook show a table of their sizes."""

    __slots__ = ()

    def __str__(self) -> str:
        total = show_bytes(sum(each.nbytes for each in self))
        rows = [
            (show_bytes(each.nbytes), f"{each.dtype}{list(each.shape)}", str(each.sharding))
            for each in self
        ]
        title = f"{count_noun(len(self), 'array')}, {total}"
        return "\n".join([title, *align_columns(rows, ("bytes", "type", "sharding"))])

    def __repr__(self) -> str:
        return abbreviate(str(self))

    def _repr_html_(self) -> str:
        return report_html(str(self))


@with_argument_errors
def live_arrays(platform: str | None = None) -> LiveArrays:
    """Return the arrays of this process that are neither deleted nor garbage, the largest first.

    The result is a list that a REPL shows as a table. `platform` restricts it to the arrays on
    devices of one platform. The function searches all objects that the garbage collector tracks,
    which takes milliseconds for each hundred thousand objects. Objects that `gc.freeze` moved are
    not found.
    """
    result = (
        each
        for each in gc.get_objects()
        if type(each) is Array
        and hasattr(each, "buffers")
        and not each.is_deleted()
        and platform in (None, each.sharding.device_assignment[0].platform)
    )
    return LiveArrays(sorted(result, key=lambda each: -each.nbytes))
