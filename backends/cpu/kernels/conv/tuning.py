"""Limits and costs that select the kernels of convolutions, by the file that uses them.

`docs/cpu_kernels.md` states the measured gain of each kernel. Costs are of one worker of an EPYC
(Zen 3, AVX2).
"""

# convolution.py
MAX_REMAINDERS = 1024
"""Maximum number of products of a convolution of a dilated image. Published networks have at most
some dozens; beyond the limit the NumPy reference computes the convolution, since compiling takes
milliseconds per product."""
MIN_INNERMOST_STEPS = 16
"""Minimum steps that the innermost K loop should have."""

# channel_pairs.py
PAIRED_COPY_NS_PER_ELEMENT = 1.0
"""Nanoseconds per element that is copied into a pair."""
MIN_PAIRED_FEATURES = 16
"""Minimum output features of a convolution of pairs, which fill a vector."""

# depthwise.py
MAX_LINES_PER_TILE = 8
"""Maximum lines computed together: their addresses must fit the registers."""
MAX_RUN_TAPS, MAX_RUN_PITCH = 8, 2
"""Maximum taps of a run that is unrolled, and maximum distance between the rows of neighbouring
lines and of neighbouring taps: with larger distances few taps read the same row."""
MIN_VECTOR_LANES = 4
"""Minimum lanes that justify a vector."""

# implicit_gemm_lhs.py
MIN_RUN_STEPS = 8
"""Minimum contiguous steps, since each run has a fixed cost."""
MAX_LINE_DISTANCE_BYTES = 4096
"""Maximum bytes between lines; lines further apart would conflict in the L1 cache."""
MAX_COLUMN_BYTES = 2048
"""Maximum bytes of columns; more columns amortize packing."""

# indirect_lhs.py
MIN_INDIRECT_LINES = 16
"""Minimum adjacent lines, since the address of each K step has a fixed cost. With 8 lines, a Zen 5
takes 0.93 of the time of packing, and 1.03 to 1.11 with AVX2."""
MAX_INDIRECT_LINE_BYTES = 4096
"""Maximum bytes of adjacent lines, for which there are zeros outside of the image."""

# layout_transform.py
SQUARE_TRANSPOSE_NS_PER_ELEMENT = 0.12
"""Nanoseconds per element that is transposed in squares."""
MAX_TRANSFORM_TIME_RATIO, MAX_COSTLY_TRANSFORM_TIME_RATIO = 0.1, 0.3
"""Maximum time of the transform relative to the product; the same if positions are not contiguous,
if only the transformed product has pairs, or with AVX-512. Transformed convolutions of ResNet-50 in
NCHW take 0.66 to 0.93 of the time of `nchw` (ratios of 0.02 to 0.07); those of CIFAR and MNIST to
32 features would take 1.13 and 1.09 (0.14). With AVX-512 (Zen 4), transformed convolutions whose
filter is contiguous along the K steps would take 1.0 to 1.43 of the time of `nchw`; gradients of
images, whose filter is not, take 0.61 to 1.09. On a Zen 5, that of ResNet-50 with 7 rows and a
batch of 1, whose filter is 9 MB, takes 0.55."""
MAX_COPIES_PER_PATCH_ELEMENT = 0.9
"""Maximum elements that the transform of a filter's gradient copies, for each element of a patch
that tiles read in place then instead of packing it. On a Zen 5, packing takes 0.11 ns per element.
The gradient of 512 features for 64 channels, with 1.09 copies, would take 1.06 of the time."""
MIN_SAVED_COPY_RATIO = 1.5
"""Minimum time that the selection of rows inside of a small image saves, relative to the transform,
if the filter is contiguous along the K steps. On a Zen 4, transformed convolutions of ResNet-50
with 7 rows in f32 take 0.94 (a batch of 32: 0.84) of the time of `nchw`, with 14 rows 0.96."""

# line_copy.py
MIN_LOOP_VECTORS = 4
"""Minimum vectors of a line that justify a separate loop."""

# nchw_layout.py
MIN_SEPARATE_IMAGE_POSITIONS, MIN_SEPARATE_IMAGE_POSITIONS_FOR_FEW_ROWS, MIN_AMORTIZING_ROWS = (
    512,
    64,
    128,
)
"""Minimum output positions of an image that is a product by itself: the first number, or the second
if there are fewer rows than the third, which would not amortize planes of all taps."""
MAX_STRIDE_REMAINDERS = 4
"""Maximum number of remainders of lines of a stride."""
MIN_NCHW_PART_STEPS, MIN_NCHW_BLOCK_COLUMNS = 128, 256
"""Minimum K steps of a part, so that rereading the result pays off, and minimum columns of a
block."""
MIN_LINES_PER_PADDING_LINE = 8
"""Minimum lines of a block for each padding line."""

# padded_nhwc.py
MIN_LINE_POSITIONS = 4
"""Minimum output positions of a line."""
MIN_IN_PLACE_FEATURES = 25
"""Minimum number of features for which tiles read the image in place instead."""
MAX_FILTER_BYTES = 128 << 10
"""Maximum bytes of a filter, which is reread for each tile."""

# patch_inner_product.py
MAX_COLUMN_LANE_FRACTION = 0.75
"""Maximum number of columns, as a fraction of the lanes of a vector."""
MAX_COPIED_LINE_BYTES = 1 << 20
"""Maximum bytes of copies of lines that are partly outside the image."""
MAX_TILE_ROWS = 8
"""Maximum rows of a tile: each row needs a register for its address."""

# patch_inner_product_kernel.py
MAX_RUN_STEPS, MAX_RUNS = 2048, 2048
"""Maximum steps of a run, and maximum number of runs."""
MAX_UNROLLED_VECTORS = 4
"""Vectors of a run up to which the loop is unrolled."""

# row_selection.py
MIN_OUTSIDE_FRACTION, PART_OVERHEAD_STEPS, PACKED_STEP_COLUMNS = 0.04, 4.0, 400.0
"""Minimum fraction of elements of patches outside of the image for which rows are selected; the K
steps that take as long as adding the sums of a part to earlier ones; and the columns whose products
with a step take as long as packing rows that are read in place otherwise. On a Zen 5, convolutions
of ResNet-50 with 7 rows and their image gradients take 0.83 to 0.88 of the time of those of all
rows, with 14 rows 0.96 to 0.98. On a Zen 4, those with 28 rows would take 0.97 to 1.02."""
