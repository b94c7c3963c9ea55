"""Special functions of f32 and f64: gamma, beta, Bessel, zeta and normal distribution functions,
with documented sources and error control. Input: tracers of one floating type. Output: elementwise
operations and loops. Start with `gamma_family`; `double_double` and
`continued_fractions` are the shared helpers.
"""
