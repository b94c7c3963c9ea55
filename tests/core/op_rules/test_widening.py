"""Operations on small dtypes: the declared arithmetic, against results computed in wider dtypes."""

import ml_dtypes
import numpy as np

from shardir.interpret.interpreter import run
from shardir.passes import Pipeline
from shardir.text.parser import parse

POOLING_GRADIENT = """\
func @main(
  %x: i4[3],
  %source: i4[2],
) -> (i4[3]) {
  %y = select_and_scatter(%x, %source, op=max, window=[2], strides=[1], padding=[[0, 0]], \
base_dilation=[1], window_dilation=[1]) : i4[3]
  return %y
}
"""


def test_sums_of_selected_elements_wrap() -> None:
    """The attribute `op` selects elements; the results are sums, not extrema."""
    program = parse(POOLING_GRADIENT)
    arguments = [np.array(values, ml_dtypes.int4) for values in ([1, 5, 2], [6, 7])]
    for each in (program, Pipeline.parse("widen-small-dtypes")(program)):
        (result,) = run(each, arguments)
        assert result.tolist() == [0, -3, 0]
