"""Limits that select a sort, each with its unit and, where one is recorded, the measurement behind
it.

Measurements are of one worker: `sort` and `argsort` of 262,144 elements in lines of some length.
Those of f32 without another remark are of an EPYC with AVX2 (Zen 3), all others of one with AVX-512
(Zen 4), where AVX2 was measured with SHARDIR_MAX_CPU_ISA. Limits of samplesort and quicksort apply
to processors with AVX-512 only.
"""

MIN_NETWORK_LINES = 4
"""Minimum number of lines of the network; fewer would leave too many lanes unused. The network is
9.0 times as fast as radix sort for lines of 16 elements, 4.8 times for 4,096 and 1.7 times for
32,768."""
MAX_NETWORK_ELEMENTS = {1: 1 << 12, 2: 1 << 14}
"""Maximum elements of lines that the network rather than radix sort sorts, for keys of few bytes
and as many lines as lanes, or more. With AVX2, radix sort takes 1.19 of the time for lines of 4,096
elements of i8, 1.0 for 8,192 and 0.84 for 16,384, and for i16 2.2, 1.83 and 1.54."""
MAX_NETWORK_ARGSORT_ELEMENTS = {1: 511, 2: 511, 4: 1 << 14}
"""Maximum elements of a line whose permutation the network computes, by the bytes of a key. Radix
sort of f32 takes 1.45 times as long for lines of 4,096 elements, and 0.74 of the time for 32,768.
With AVX2, it takes 0.37 (i8) and 0.73 (i16) of the time for 512, and 0.11 and 0.21 for 4,096."""
MIN_MANY_LINES, MIN_LINE_ELEMENTS = 4, 512
"""Lines of fewer elements than the second number are not radix-sorted if there are at least as many
lines as the first: their tables cost too much."""
MIN_PART_ELEMENTS = 1 << 15
"""Minimum elements of a part of a line that one task of radix sort processes."""
MIN_RADIX_ARGSORT_ELEMENTS = {1: 512, 2: 1024, 4: 1 << 18}
"""Minimum elements of lines for which radix sort computes permutations as fast as quicksort of
words, or faster, by the bytes of a key. For 4,096 elements it takes 0.34 (i8) and 0.65 (i16) of the
time, for 512 elements of i16 1.44. Lines of f32 that share digits are sorted faster."""
PART_ELEMENTS = 1 << 15
"""Elements of a line that one task converts to words."""

MAX_NETWORK_ELEMENTS_BEFORE_QUICKSORT = {2: 448, 4: 448, 8: 1 << 11}
"""Maximum elements of many lines that the network rather than quicksort sorts, by the bytes of a
key. Quicksort takes 2.2 times as long as the network for 256 elements of i16, 1.28 for 384 and
0.97 for 512; 1.0 for 256 elements of f32, 1.27 for 384, 0.92 for 512 and 0.89 for 768; 1.13 for 256
elements of f64, 1.15 for 1,024 and 1.0 for 3,000."""
MAX_NETWORK_ELEMENTS_PER_LINE = 16
"""Maximum elements of a line for each line: few lines leave lanes of the network unused, and
quicksort takes as long for a short line as for one block of registers. For 4 lines of 256 elements
of f32 quicksort takes 0.39 of the time, for 16 lines 1.0."""
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
