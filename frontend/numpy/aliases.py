"""Public names that would shadow Python builtins in the modules that define their values."""

import numpy as np

from shardir.frontend.arrays.operators import Operators
from shardir.frontend.numpy.dtypes import bool_
from shardir.frontend.numpy.elementwise.arithmetic import power

bool = bool_
pow = power
ndarray = Operators
"""The base class of arrays and tracers, for `isinstance`."""
ComplexWarning = np.exceptions.ComplexWarning
"""NumPy's warning for a discarded imaginary part, for compatibility; it is never emitted here."""
