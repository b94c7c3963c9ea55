"""Names that would hide Python's own where what they mean is defined."""

from shardir.frontend.numpy.arithmetic import power
from shardir.frontend.numpy.dtypes import bool_
from shardir.frontend.operators import Operators

bool = bool_
pow = power
ndarray = Operators
"""What arrays and traced values are, for `isinstance`."""
