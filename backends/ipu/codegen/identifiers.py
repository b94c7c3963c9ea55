"""C++ identifiers for the names of values."""

import re

_KEYWORDS = """alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t
char32_t class compl const const_cast constexpr continue decltype default delete do double
dynamic_cast else enum explicit export extern false float for friend goto if inline int long mutable
namespace new noexcept not not_eq nullptr operator or or_eq private protected public register
reinterpret_cast return short signed sizeof static static_assert static_cast struct switch template
this thread_local throw true try typedef typeid typename union unsigned using virtual void volatile
wchar_t while xor xor_eq main"""
_PROGRAM_NAMES = """Copy CrossReplicaCopy Graph Groups If RepeatWhileTrue Sequence Shape Switch
Tensor build contract gcl graph pe poplar poplin popops poputil program shardir_ipu std step"""
"""Names that the program's text uses itself."""
_RESERVED = frozenset((_KEYWORDS + " " + _PROGRAM_NAMES).split())


class Identifiers:
    """Makes unique identifiers from names: `%h.1` becomes `h_1`, `%0` becomes `v0`."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def make_unused(self, name: str) -> str:
        """Return an unused identifier, as similar to the name as possible."""
        legal = re.sub(r"[^A-Za-z0-9_]", "_", name).strip("_") or "v"
        legal = re.sub(r"__+", "_", legal)
        if legal[0].isdigit():
            legal = f"v{legal}"
        if legal in _RESERVED:
            legal += "_"
        made, count = legal, 2
        while made in self._taken:
            made, count = f"{legal}_{count}", count + 1
        self._taken.add(made)
        return made
