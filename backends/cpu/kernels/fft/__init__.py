"""Fourier transforms in scratch memory, as many rows at a time as a vector has lanes.

Input: an `fft` operation and its views. Output: phases. A task loads row i of its rows into lane i,
real and imaginary parts separately, so that each step on a point of a row is a step on whole
vectors. Long rows are factored into batches of shorter ones. Lengths with prime factors above
`MAX_PRIME_FACTOR` are computed as convolutions of other lengths. Start reading in `batches.py`.
"""
