"""Limits and costs that select the kernels of products, by the file that uses them.

`docs/cpu_kernels.md` states the measured gain of each kernel. Costs are of one worker of an EPYC
(Zen 3, AVX2). Limits that depend on the caches are computed from the description of the host.
"""

# block_sizes.py
MAX_BLOCK_LINES = 2048
"""Maximum rows, and maximum columns, of a block."""
MAX_PART_STEPS = 512
"""Maximum K steps of a part; larger parts would not reduce the traffic of results."""
MAX_TILE_PART_STEPS = 1024
"""Maximum steps of a part for tile registers. On one core of an Emerald Rapids, 1024³ of bf16 takes
2.6 ms in one part of 512 groups and 3.4 ms in two; 2048³ takes 21.8 ms in one part of 1,024 groups
and 25.6 ms in two."""
PART_STEP_MULTIPLE = 64
"""K steps of a part are a multiple of this, except in the last part."""
PACKED_LHS_BYTES, PACKED_RHS_BYTES, STAGING_BYTES = 384 << 10, 2 << 20, 1 << 20
"""Scratch bytes for packed rows, for packed columns, and for staged results."""

# product_dispatch.py
MIN_COLUMN_RUN_BYTES = 128
"""Minimum bytes of a run of result columns for which outer column loops become batch loops."""
PACK_TASK_BYTES = 256 << 10
"""Bytes that a packing task packs for later tasks."""
MAX_PACKED_OPERAND_BYTES = 128 << 20
"""Maximum bytes of a right operand that is packed as a whole."""
MIN_STREAMED_MATRIX_BYTES, STREAMED_PARTS, MIN_STREAMED_LINES = 4 << 20, 4, 16
"""A matrix of at least the first number of bytes is split into this many parts along K, of at least
this many lines each."""
MIN_SPLIT_K_STEPS = 16384
"""Minimum K steps for split-K with a small result."""
MAX_SPLIT_K_RESULT_ELEMENTS = 4096
"""Maximum elements of a small result."""
MIN_UNCACHED_SPLIT_K_STEPS, MAX_UNCACHED_RESULT_ELEMENTS = 65536, 65536
"""Minimum K steps and maximum elements for split-K of sums so long that no cache holds an operand:
the operands are read once instead of once for each block of the result."""
MIN_PACKED_SPLIT_K_STEPS, MIN_PACKED_SPLIT_K_EXTENT, MIN_STEPS_PER_PART = 8192, 64, 2048
"""Minimum K steps, minimum rows and columns, and K steps per part for split-K of products whose
operands are both packed: each task packs parts that fit the caches."""
MAX_SPLIT_K_PARTS = 32
"""Maximum number of parts of split-K."""
PARTIAL_SUM_BYTES_PER_NS = 8.0
"""Bytes of partial sums that are added per nanosecond."""

TILE_RATE_RATIO = 4.0
"""The rate of products of groups by tile registers, relative to that of vectors of as many sums: on
an Emerald Rapids, 512³ of bf16 takes 0.31 ms, and 3.2 ms with AVX512-BF16, which takes twice as
long as f32 there."""

# grouped_steps.py
MIN_GROUPED_LINES = 32
"""Minimum rows, and minimum columns, of a product of groups, which amortize copies of the
operands. On a Zen 4, products of pairs of bf16 take half of the time of products of widened values
(1024³ 10.2 ms instead of 19.3 ms), and those of i8 as pairs of i16 0.4 of it (10.2 ms instead of
27.4 ms); 24 products of 128 by 128 over 64 take 0.6 of the time of `unpacked`. On a Zen 5, groups
of four values of i8 take 0.53 of the time of pairs of i16 (1024³ 2.36 ms instead of 4.47 ms)."""
MIN_TILE_LINES = 9
"""Minimum rows, and minimum columns, of a product of tiles. On an Emerald Rapids, products of bf16
with 1,024 K steps take 0.65 of the time of widened values for 12 rows and 1,024 columns, 0.46 for
12 columns and 1,024 rows, and 1.2 for 8 rows. Gradients of filters with 9 to 24 rows or columns
take 0.22 to 0.42 of the time of widened values on a Zen 4, without the instructions of tiles."""
MIN_TILE_GROUPS = 8
"""Minimum groups of contiguous K steps of a product of tiles, half of a block."""
MIN_PACKED_GROUP_LINES = 16
"""Minimum rows, and minimum columns, of a product of pairs that packing makes, which fill a
vector. On a Zen 5, gradients of filters of ResNet-50 in bf16 take 0.52 to 0.63 of the time of those
that are computed with f32 values."""
MIN_PAIRED_STEPS = 8
"""Minimum contiguous K steps of patches that are loaded as vectors of pairs. On a Zen 4, filter
gradients of ResNet-50 in NCHW layout with 56, 28 and 14 rows take 0.88, 0.88 and 0.79 of the time
of patches that are packed element by element."""
MIN_CONTIGUOUS_PATCH_LINES, MIN_STEPS_PER_COPIED_COLUMN = 32, 4
"""Minimum contiguous lines of patches that are the right operand, whose panels have 32 lines
instead of 12, and minimum K steps for each column of a result that is copied for that. On a Zen 4,
filter gradients of ResNet-50 in NHWC layout with 56 and 28 rows take 0.90 and 0.92 of the time, and
those with 14 and 7 rows would take 1.01 and 1.24."""

# operand_copies.py
SKINNY_ROWS = 8
"""Maximum rows of a skinny product."""
MIN_TRANSPOSED_VECTORS = 4
"""Minimum vectors of rows for which the transposed result is computed and copied."""
MAX_COPIED_COLUMN_BYTES = 512
"""Maximum bytes of columns that are copied rather than packed if they are not contiguous."""

# skinny_dispatch.py
CACHED_RHS_BYTES, MAX_CACHED_RHS_BYTES = 384 << 10, 1 << 20
"""Maximum bytes of a right operand that stays in cache while rows are computed. The limit is three
quarters of the L2 cache, clamped to these two values, if many rows amortize the first read and
steps are less than a page apart; otherwise it is the first value."""
STRIDED_LHS_CACHED_RHS_BYTES = 128 << 10
"""Maximum bytes of the right operand if the K steps of the left operand are not contiguous."""
MAX_PREFETCHED_ROW_BYTES = 640
"""Maximum bytes of columns for which rows are computed so fast that they must be prefetched."""
L1_WAYS = 8
"""Associativity of the L1 cache."""
L2_WAYS = 16
"""Associativity of the L2 cache."""
MIN_STREAMED_RHS_BYTES = 768 << 10
"""Minimum bytes of a right operand that does not fit the L2 cache."""
MIN_MEMORY_RHS_BYTES = 12 << 20
"""Minimum bytes of a right operand that is read from memory: several rows are computed per pass."""
READ_BYTES, MIN_READ_BYTES, MIN_READ_PIECES = 16384, 1024, 4
"""Target and minimum bytes of a contiguous read; the number of pieces to split columns into."""
MAX_REWIDENED_RHS_BYTES = 16 << 10
"""Maximum bytes of a right operand whose elements are widened again for each few rows."""
MIN_INNER_PRODUCT_STEPS = 4
"""Minimum K steps of an inner product that are accumulated in vectors."""
MIN_UNROLLED_PRODUCTS = 64
"""Minimum number of products that justify a kernel for their exact size."""
MAX_UNPACKED_ROWS = 128
"""Maximum rows that do not amortize packing a right operand."""
MAX_INNER_PRODUCT_COLUMNS = 12
"""Maximum columns of a product that is computed as inner products."""
RELATIVE_COST_BY_WIDTH = {1: 1.2, 2: 1.02, 3: 1.0}
"""Vectors of columns per tile, and the relative cost of each: a loaded element of the left operand
is used for all of them."""

# skinny_gemm.py
MAX_ROWS_PER_SWEEP = 4
"""Rows of the result that are computed together; the L1 cache has few ways."""

# unrolled_batched.py
MAX_LHS_ELEMENTS = 64
"""Maximum elements of the left operand, which is the number of multiplied vectors."""
MAX_UNROLLED_STEPS = 16
"""Maximum K steps, whose vectors are held in registers."""

# inner_product.py
MIN_ACCUMULATION_CHAINS = 8
"""Minimum number of independent accumulation chains, which hide the latency of additions."""

# packing.py
MAX_INTERLEAVED_PANELS = 4
"""Maximum number of panels that are packed together."""
STEPS_PER_LINE = 64
"""Steps of some lines that are packed before steps of the next lines."""
PACK_PREFETCH_STEPS = 16
"""Prefetch distance in steps for contiguous lines."""

# unpacked_gemm.py
RHS_PREFETCH_STEPS = 12
"""Prefetch distance in steps of the right operand."""

# task_grid.py
PACK_NS_PER_BYTE = 0.075
"""Nanoseconds that packing one byte takes."""
PACKED_READ_COST_RATIO = 0.2
"""Cost of reading a packed element, relative to packing it."""
PACK_PHASE_COST_RATIO = 1.5
"""Cost of packing a whole operand in a separate phase, through memory, relative to packing it in
place."""
TASK_OVERHEAD_NS, PHASE_OVERHEAD_NS = 500.0, 5_000.0
"""Nanoseconds of a task and of a phase besides its work."""
IDLE_FRACTION = 0.1
"""Mean fraction of a task during which workers wait for other workers."""
SPLIT_COUNTS = (*range(1, 17), 20, 24, 32, 48, 64)
"""Numbers of parts into which a task grid splits rows or columns."""
