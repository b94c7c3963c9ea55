"""The namespace `shardir.scipy.stats`: probability distributions and statistics of samples."""

from shardir.frontend.scipy.distributions.continuous import (
    beta as beta,
    cauchy as cauchy,
    chi2 as chi2,
    expon as expon,
    gamma as gamma,
    gennorm as gennorm,
    laplace as laplace,
    logistic as logistic,
    norm as norm,
    pareto as pareto,
    t as t,
    uniform as uniform,
    vonmises as vonmises,
    wrapcauchy as wrapcauchy,
)
from shardir.frontend.scipy.distributions.counts import (
    betabinom as betabinom,
    binom as binom,
    multinomial as multinomial,
    nbinom as nbinom,
)
from shardir.frontend.scipy.distributions.discrete_and_multivariate import (
    bernoulli as bernoulli,
    dirichlet as dirichlet,
    geom as geom,
    multivariate_normal as multivariate_normal,
    poisson as poisson,
)
from shardir.frontend.scipy.distributions.gumbel import (
    gumbel_l as gumbel_l,
    gumbel_r as gumbel_r,
)
from shardir.frontend.scipy.distributions.truncated_normal import truncnorm as truncnorm
from shardir.frontend.scipy.sample_statistics import (
    mode as mode,
    rankdata as rankdata,
    sem as sem,
)
