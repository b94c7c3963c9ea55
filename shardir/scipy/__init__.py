"""SciPy's functions for sharded arrays.

The functions take and return arrays or tracers. Start with `special.py`; the implementations are in
`shardir.frontend.scipy` and are loaded on first use.
"""

from typing import TYPE_CHECKING

from shardir._imports.lazy_names import lazy_names

TABLE: dict[str, tuple[str, ...]] = {
    "shardir.scipy.cluster": (),
    "shardir.scipy.fft": (),
    "shardir.scipy.integrate": (),
    "shardir.scipy.interpolate": (),
    "shardir.scipy.linalg": (),
    "shardir.scipy.ndimage": (),
    "shardir.scipy.optimize": (),
    "shardir.scipy.signal": (),
    "shardir.scipy.sparse": (),
    "shardir.scipy.spatial": (),
    "shardir.scipy.special": (),
    "shardir.scipy.stats": (),
}
"""The public names that each module defines."""

if TYPE_CHECKING:
    from shardir.scipy import (
        cluster as cluster,
        fft as fft,
        integrate as integrate,
        interpolate as interpolate,
        linalg as linalg,
        ndimage as ndimage,
        optimize as optimize,
        signal as signal,
        sparse as sparse,
        spatial as spatial,
        special as special,
        stats as stats,
    )
else:
    __getattr__, __dir__ = lazy_names(__name__, TABLE)
