"""Probability distributions, statistics of samples, and density estimation."""

from typing import TYPE_CHECKING

from shardir._imports.lazy_names import lazy_names

TABLE: dict[str, tuple[str, ...]] = {
    "shardir.frontend.scipy.kernel_density": ("gaussian_kde",),
    "shardir.frontend.scipy.stats": (
        "bernoulli",
        "beta",
        "betabinom",
        "binom",
        "cauchy",
        "chi2",
        "dirichlet",
        "expon",
        "gamma",
        "gennorm",
        "geom",
        "gumbel_l",
        "gumbel_r",
        "laplace",
        "logistic",
        "mode",
        "multinomial",
        "multivariate_normal",
        "nbinom",
        "norm",
        "pareto",
        "poisson",
        "rankdata",
        "sem",
        "t",
        "truncnorm",
        "uniform",
        "vonmises",
        "wrapcauchy",
    ),
}
"""The public names that each module defines."""

if TYPE_CHECKING:
    from shardir.frontend.scipy.kernel_density import gaussian_kde as gaussian_kde
    from shardir.frontend.scipy.stats import (
        bernoulli as bernoulli,
        beta as beta,
        betabinom as betabinom,
        binom as binom,
        cauchy as cauchy,
        chi2 as chi2,
        dirichlet as dirichlet,
        expon as expon,
        gamma as gamma,
        gennorm as gennorm,
        geom as geom,
        gumbel_l as gumbel_l,
        gumbel_r as gumbel_r,
        laplace as laplace,
        logistic as logistic,
        mode as mode,
        multinomial as multinomial,
        multivariate_normal as multivariate_normal,
        nbinom as nbinom,
        norm as norm,
        pareto as pareto,
        poisson as poisson,
        rankdata as rankdata,
        sem as sem,
        t as t,
        truncnorm as truncnorm,
        uniform as uniform,
        vonmises as vonmises,
        wrapcauchy as wrapcauchy,
    )
else:
    __getattr__, __dir__ = lazy_names(__name__, TABLE)
