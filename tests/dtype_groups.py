"""Groups of dtypes without those of at most 8 bits that `tests/frontend/test_small_dtypes.py`
tests: compiled programs replace them by other dtypes."""

from shardir.ir import dtypes


def _without_small(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in names if name not in dtypes.SMALL_DTYPES)


DTYPES = _without_small(dtypes.DTYPES)
SIGNED, UNSIGNED = _without_small(dtypes.SIGNED), _without_small(dtypes.UNSIGNED)
INTEGERS, FLOATS = SIGNED + UNSIGNED, _without_small(dtypes.FLOATS)
INEXACT = FLOATS + dtypes.COMPLEX
