"""The namespace `shardir.scipy.stats`: probability distributions."""

from shardir.frontend.scipy.distributions.continuous import (
    beta as beta,
    cauchy as cauchy,
    chi2 as chi2,
    expon as expon,
    gamma as gamma,
    laplace as laplace,
    logistic as logistic,
    norm as norm,
    pareto as pareto,
    t as t,
    uniform as uniform,
)
from shardir.frontend.scipy.distributions.discrete_and_multivariate import (
    bernoulli as bernoulli,
    dirichlet as dirichlet,
    geom as geom,
    multivariate_normal as multivariate_normal,
    poisson as poisson,
)
