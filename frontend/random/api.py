"""Random numbers from explicit keys, equal to those of `jax.random` for the same keys.

A key is an immutable array of element type `key`. The numbers depend only on the key and the shape,
never on shardings. The algorithms are JAX's (threefry2x32 of Salmon et al., "Parallel random
numbers: as easy as 1, 2, 3", SC'11), bit for bit for integers and uniform numbers.
"""

from shardir.frontend.random.continuous_distributions import (
    bernoulli as bernoulli,
    categorical as categorical,
    cauchy as cauchy,
    exponential as exponential,
    gumbel as gumbel,
    laplace as laplace,
    logistic as logistic,
    lognormal as lognormal,
    normal as normal,
    pareto as pareto,
    rademacher as rademacher,
    rayleigh as rayleigh,
    truncated_normal as truncated_normal,
    weibull_min as weibull_min,
)
from shardir.frontend.random.derived_distributions import (
    double_sided_maxwell as double_sided_maxwell,
    maxwell as maxwell,
    multivariate_normal as multivariate_normal,
    orthogonal as orthogonal,
    triangular as triangular,
    wald as wald,
)
from shardir.frontend.random.discrete_distributions import (
    binomial as binomial,
    geometric as geometric,
    multinomial as multinomial,
    poisson as poisson,
)
from shardir.frontend.random.gamma_distributions import (
    ball as ball,
    beta as beta,
    chisquare as chisquare,
    dirichlet as dirichlet,
    f as f,
    gamma as gamma,
    generalized_normal as generalized_normal,
    loggamma as loggamma,
    t as t,
)
from shardir.frontend.random.keys import (
    PRNGKey as PRNGKey,
    clone as clone,
    fold_in as fold_in,
    key as key,
    key_data as key_data,
    key_dtype as key_dtype,
    key_impl as key_impl,
    split as split,
    wrap_key_data as wrap_key_data,
)
from shardir.frontend.random.permutations import choice as choice, permutation as permutation
from shardir.frontend.random.uniform_numbers import (
    bits as bits,
    randint as randint,
    uniform as uniform,
)
