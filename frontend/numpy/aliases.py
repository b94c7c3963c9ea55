"""Names that would hide Python's own where what they mean is defined."""

import numpy as np

from shardir.frontend.numpy.arithmetic import power
from shardir.frontend.numpy.dtypes import bool_
from shardir.frontend.operators import Operators

bool = bool_
pow = power
ndarray = Operators
"""What arrays and traced values are, for `isinstance`."""
ComplexWarning = np.exceptions.ComplexWarning
"""What NumPy warns with when an imaginary part is dropped; nothing here warns."""
