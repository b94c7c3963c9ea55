"""Compare results/ with expected/, which the reference interpreter computed.

The exit status is 0 if every result has the expected shape, dtype and values, and 1 otherwise.
Integers, booleans and keys must be equal. Floating-point results may differ by a fraction of the
largest expected element: 4e-3 in half precision, 1e-3 otherwise; NaN and infinities must be in the
expected positions.
"""

import sys
from pathlib import Path

import numpy as np

from shardir.errors import count_noun


def compare(got: np.ndarray, want: np.ndarray) -> tuple[bool, str]:
    """Return whether a result is wrong, and a description of how it differs."""
    if got.dtype != want.dtype:
        return True, f"has the dtype {got.dtype}, and {want.dtype} is expected"
    if got.shape != want.shape:
        return True, f"has the shape {list(got.shape)}, and {list(want.shape)} is expected"
    if want.dtype.kind not in "fc":
        count = int(np.count_nonzero(got != want))
        return count > 0, f"differs in {count} of {count_noun(want.size, 'element')}"
    finite = np.isfinite(want)
    if not np.array_equal(got[~finite], want[~finite], equal_nan=True):
        return True, "is not NaN or infinite where that is expected"
    if not np.isfinite(got[finite]).all():
        return True, "is NaN or infinite where a number is expected"
    wide = np.complex128 if want.dtype.kind == "c" else np.float64
    gap = np.abs(got[finite].astype(wide) - want[finite]).max(initial=0.0)
    largest = np.abs(want[finite].astype(wide)).max(initial=0.0)
    share = float(gap / largest) if largest else float(gap)
    allowed = 4e-3 if want.dtype.itemsize == 2 else 1e-3
    return share > allowed, f"differs by {share:.1e} of the largest element ({allowed:.0e} allowed)"


def main() -> int:
    """Print one line for each result; return the exit status."""
    expected = sorted(Path("expected").glob("*.npy"))
    if not expected:
        print("there is no expected/*.npy; run this script in the folder of the program")
        return 1
    failed = False
    for path in expected:
        try:
            got = np.load(Path("results") / path.name)
        except (OSError, ValueError, EOFError) as error:
            wrong, what = True, f"cannot be read from results/{path.name}: {error}"
        else:
            wrong, what = compare(got, np.load(path))
        print(f"{'WRONG' if wrong else 'ok   '} {path.stem}: {what}")
        failed = failed or wrong
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
