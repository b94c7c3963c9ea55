"""Helpers that all families of NumPy functions share: promotion and emission of elementwise
operations, canonical axes and shapes, slices and transpositions of tracers, access to concrete
values. Input: operands and axes as users pass them. Output: tracers of one type and shape,
canonical axes, concrete NumPy arrays. Start with `elementwise_emission`.
"""
