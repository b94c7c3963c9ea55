"""Fourier transforms in scratch memory, as many rows at a time as a vector has lanes.

A task brings its rows to scratch memory, row i to lane i, all real parts and all imaginary ones
apart: whatever is done to a point of a row is then done to whole vectors. Long rows are divided:
their parts are rows of a batch. Lengths with prime factors above `MOST` are sums of good ones.
"""

from shardir.backends.cpu.native.transforms.rules import RULES as RULES
