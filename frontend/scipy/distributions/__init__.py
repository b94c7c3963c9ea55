"""Probability distributions of `scipy.stats`: a class of continuous distributions, and discrete and
multivariate ones. Input: points or probabilities, shape parameters, loc and scale. Output:
densities, distribution functions and quantiles. Start with `distribution`.
"""
