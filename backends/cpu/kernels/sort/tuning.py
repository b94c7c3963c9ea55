"""Limits that select a sort, each with its unit and, where one is recorded, the measurement behind
it.

Measurements are of one worker of an EPYC (Zen 3, AVX2): `sort` and `argsort` of 262,144 elements of
f32 in lines of some length. Limits of samplesort and quicksort apply to processors with AVX-512
only; no measurement of them is recorded.
"""

MIN_NETWORK_LINES = 4
"""Minimum number of lines of the network; fewer would leave too many lanes unused. The network is
9.0 times as fast as radix sort for lines of 16 elements, 4.8 times for 4,096 and 1.7 times for
32,768."""
MAX_NETWORK_ARGSORT_ELEMENTS = 1 << 14
"""Maximum elements of a line whose permutation the network computes. Radix sort takes 1.45 times as
long for lines of 4,096 elements, and 0.74 of the time for 32,768."""
MIN_MANY_LINES, MIN_LINE_ELEMENTS = 4, 512
"""Lines of fewer elements than the second number are not radix-sorted if there are at least as many
lines as the first: their tables cost too much."""
MIN_PART_ELEMENTS = 1 << 15
"""Minimum elements of a part of a line that one task of radix sort processes."""
MIN_RADIX_ARGSORT_ELEMENTS = 1 << 18
"""Minimum elements of lines for which radix sort computes permutations as fast as quicksort of
words, or faster if they share digits."""
PART_ELEMENTS = 1 << 15
"""Elements of a line that one task converts to words."""

MIN_UNSHARED_LINES = 4
"""Minimum number of lines that the network sorts rather than quicksort if one block of registers
holds a line."""
MIN_SHARED_LINE_BYTES = 1 << 18
"""Minimum bytes of lines that all workers sort together if there are few lines."""
MIN_SAMPLESORT_ELEMENTS = 1 << 15
"""Minimum elements of a line that is split into buckets."""
PART_BYTES = 1 << 18
"""Bytes of a part of a line; the L2 cache holds two of them."""
BUCKET_BYTES = 1 << 17
"""Target bytes of a bucket."""
MIN_BUCKETS, MAX_BUCKETS = 8, 128
"""Minimum and maximum number of buckets of a line."""
SAMPLES_PER_BUCKET = 64
"""Sampled keys per bucket."""

MAX_NETWORK_BLOCKS = 4
"""Maximum blocks of a range that the network in registers sorts."""
MIN_FREQUENT_KEYS = 6
"""Minimum equal keys in a sample of five vectors for which even short ranges are partitioned."""
PARTITIONS_PER_BIT = 2
"""Maximum number of partitions of a range, per bit of the line length."""
