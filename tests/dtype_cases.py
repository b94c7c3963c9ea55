"""Expressions whose element types are compared with JAX's, for every element type of `x` (and `y`).

`snp`, `lax`, `nn`, `special`, `stats`, `linalg`, `random` and `segment` are the modules of either
library. `x` and `y` are vectors of four elements or Python scalars, `m` is a matrix of three rows and
columns, `t` a scalar array; all have the element type of the column.
"""

UNARY = """
abs absolute acos acosh angle arccos arccosh arcsin arcsinh arctan arctanh argmax argmin
argsort asin asinh atan atanh bitwise_count bitwise_invert bitwise_not
cbrt ceil conj conjugate cos cosh count_nonzero deg2rad degrees
exp exp2 expm1 fabs fix floor frexp i0 imag invert iscomplex isfinite isinf isnan
isneginf isposinf isreal log log10 log1p log2 logical_not modf nan_to_num
negative positive rad2deg radians real reciprocal rint round sign
signbit sin sinc sinh spacing sqrt square tan tanh trunc
""".split()

REDUCTIONS = """
all amax amin any average cov corrcoef cumprod cumsum cumulative_prod cumulative_sum max mean
median min nanargmax nanargmin nancumprod nancumsum nanmax nanmean nanmedian nanmin nanprod
nanstd nansum nanvar prod ptp std sum var trapezoid diff ediff1d gradient sort sort_complex
vander diag flip ravel roll tri roots unwrap argwhere_ lexsort_ unpackbits_
""".replace("argwhere_ lexsort_ unpackbits_", "").replace(" tri ", " ").split()

BINARY = """
add arctan2 atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor copysign
divide divmod equal float_power floor_divide fmax fmin fmod gcd greater greater_equal heaviside hypot
lcm ldexp left_shift less less_equal logaddexp logaddexp2 logical_and logical_or logical_xor maximum
minimum mod multiply nextafter not_equal pow power remainder right_shift subtract true_divide
""".split()

BINARY_OF_VECTORS = """
allclose append array_equal array_equiv concatenate_ convolve correlate dot inner interp_ isclose isin kron
matmul outer polyadd polymul polysub polyval polydiv setdiff1d_ tensordot union1d_ vdot vecdot searchsorted
digitize polyval
""".split()

EXPRESSIONS = [
    *(f"snp.{name}(x)" for name in UNARY),
    *(f"snp.{name}(x)" for name in REDUCTIONS),
    "snp.cov(x, x)", "snp.corrcoef(x, x)", "snp.cov(m)", "snp.average(x, weights=x)",
    "snp.average(x, weights=x, returned=True)", "snp.mean(m, 0)", "snp.std(m, 1)", "snp.var(m, 0)",
    "snp.argwhere(x, size=2)", "snp.nonzero(x, size=2)", "snp.flatnonzero(x, size=2)",
    "snp.lexsort((x, x))", "snp.argpartition(x, 1)", "snp.partition(x, 1)",
    "snp.bincount(x, length=3)", "snp.bincount(snp.arange(4), x, length=3)",
    "snp.searchsorted(x, x)", "snp.digitize(x, x)", "snp.histogram(x)", "snp.histogram(x, weights=x)",
    "snp.histogram(x, density=True)", "snp.histogram_bin_edges(x)", "snp.histogram2d(x, x)",
    "snp.histogramdd(m)", "snp.interp(x, x, x)", "snp.interp(1.0, x, x)", "snp.interp(x, x, x, 0, 1)",
    "snp.unique(x, size=3)", "snp.unique(x, size=3, return_index=True, return_inverse=True, return_counts=True)",
    "snp.unique_all(x, size=3)", "snp.unique_counts(x, size=3)", "snp.unique_inverse(x, size=3)",
    "snp.unique_values(x, size=3)", "snp.intersect1d(x, x, size=3)", "snp.setdiff1d(x, x, size=3)",
    "snp.setxor1d(x, x, size=3)", "snp.union1d(x, x, size=3)",
    "snp.intersect1d(x, x, size=3, return_indices=True)",
    "snp.quantile(x, 0.5)", "snp.quantile(x, snp.array([0.1, 0.5]))", "snp.percentile(x, 50)",
    "snp.percentile(x, 50.0)", "snp.nanquantile(x, 0.5)", "snp.nanpercentile(x, 50)",
    "snp.quantile(x, 0.5, method='lower')", "snp.median(m, 0)", "snp.nanmedian(m, 0)",
    "snp.argmax(m, 0)", "snp.argmin(m)", "snp.argsort(m, descending=True)", "snp.sort(m, axis=0)",
    "snp.cumsum(m, 0)", "snp.sum(x, dtype='f4')", "snp.sum(x, dtype=int)", "snp.sum(x, dtype=float)",
    "snp.mean(x, dtype='i4')", "snp.mean(x, dtype=float)", "snp.prod(x, dtype=int)",
    "snp.cumsum(x, dtype=float)", "snp.std(x, dtype=float)", "snp.var(x, dtype='f4')", "snp.var(x, ddof=1)",
    "snp.sum(x, initial=1)", "snp.sum(x, initial=1.5)", "snp.max(x, initial=0)", "snp.sum(x, where=x)",
    "snp.mean(x, where=snp.array([True, True, False, True]))", "snp.count_nonzero(m, 0)",
    "snp.trace(m)", "snp.diagonal(m)", "snp.diagflat(x)", "snp.tril(m)", "snp.triu(m)", "snp.transpose(m)",
    "snp.gradient(m)", "snp.gradient(x, 2)", "snp.gradient(x, 2.0)", "snp.trapezoid(x, x)", "snp.trapezoid(x, dx=2.0)",
    "snp.linspace(x, x, 5)", "snp.linspace(0, 1, 5)", "snp.linspace(0, 5, 5, dtype=int)", "snp.logspace(0, 1, 5)", "snp.geomspace(1, 2, 5)",
    "snp.logspace(x, x, 3)", "snp.geomspace(x, x, 3)", "snp.linspace(x, x, 5, retstep=True)",
    "snp.arange(3)", "snp.arange(3.0)", "snp.arange(0, 3, 0.5)", "snp.arange(3, dtype='u1')", "snp.arange(True)",
    "snp.zeros(3)", "snp.ones(3)", "snp.empty(3)", "snp.eye(3)", "snp.identity(3)", "snp.full(3, 1)", "snp.full(3, 1.5)",
    "snp.full(3, True)", "snp.full(3, 1j)", "snp.full(3, x[0])", "snp.full(3, 1, dtype='i1')", "snp.zeros(3, int)",
    "snp.zeros_like(x)", "snp.ones_like(x)", "snp.full_like(x, 1)", "snp.full_like(x, 1.5)", "snp.empty_like(x)",
    "snp.full_like(x, x[0])", "snp.zeros_like(x, dtype=float)", "snp.zeros_like(1)", "snp.ones_like(1.5)", "snp.full_like(2, 3.5)",
    "snp.array(x)", "snp.array(1)", "snp.array(1.5)", "snp.array([1, 2])", "snp.array([1, 2.5])", "snp.array([1, True])",
    "snp.array([x[0], 1])", "snp.array([x[0], 1.5])", "snp.asarray(x)", "snp.asarray(1j)", "snp.array(x, dtype=float)",
    "snp.asarray(x, dtype=int)", "snp.asarray([1, 1j])", "snp.asarray(True)", "snp.copy(x)", "snp.astype(x, int)", "x.astype(float)",
    "x.astype('i1')", "snp.asarray(np.float64(1))", "snp.asarray(np.int64(1))", "snp.asarray([np.int64(1), 2])",
    "snp.asarray([np.float32(1), 2])", "snp.asarray([np.int8(1), 2])", "snp.asarray(np.ones(2))", "snp.asarray(np.float16(1))",
    "x + 1", "x + 1.5", "x + 1j", "x + True", "1 - x", "2.0 * x", "x / 2", "2 / x", "x // 2", "x % 2", "x ** 2", "x ** -1", "x ** 2.0", "x ** 0.5",
    "2 ** x", "2.0 ** x", "x @ x", "-x", "abs(x)", "~x", "x << 1", "x >> 1", "1 << x", "x & 1", "x | 1", "x ^ 1", "x == 1", "x < 1.5", "divmod(x, 2)", "round(x)",
    "x + np.int64(1)", "x + np.float32(1)", "x + np.float64(1)", "x + np.ones(4)", "x * np.arange(4)", "x + np.int8(1)", "x + np.bool_(1)", "x + np.complex128(1)",
    "t + 1", "t + 1.5", "t * t", "snp.add(t, 2)", "t / 2", "snp.where(t, 1, 2)", "snp.where(x, 1, 2)", "snp.where(x, 1, 2.5)", "snp.where(x, x, 1)", "snp.where(x, x, 1.5)", "snp.where(x, x, x)",
    "snp.where(x, size=2)", "snp.select([snp.array([True] * 4)], [x])", "snp.select([snp.array([True] * 4)], [x], 1.5)", "snp.choose(snp.array([0, 1, 0, 1]), [x, 1])", "snp.piecewise(x, [snp.array([True, False, True, False])], [1.5, 2])", "snp.piecewise(x, [snp.array([True, False, True, False])], [lambda v: v + 1, lambda v: v * 2])",
    "snp.clip(x, 0, 1)", "snp.clip(x, 0.5, 1.5)", "snp.clip(x, min=0)", "snp.clip(x, x, x)", "snp.clip(x)",
    "snp.round(x, 1)", "snp.round(x, -1)", "snp.around(x, 2)", "snp.nan_to_num(x, nan=1.5)", "snp.power(x, 2)", "snp.power(x, -1)", "snp.float_power(x, 2)", "snp.maximum(x, 0)", "snp.maximum(x, 0.5)", "snp.hypot(x, 1)", "snp.arctan2(x, 1)", "snp.logaddexp(x, 1)", "snp.heaviside(x, 1)", "snp.heaviside(x, 0.5)", "snp.copysign(x, 1)", "snp.ldexp(x, 1)", "snp.ldexp(1.0, x)", "snp.nextafter(x, 1)", "snp.fmod(x, 2)", "snp.remainder(x, 2.5)", "snp.divmod(x, 2)", "snp.floor_divide(x, 2)", "snp.gcd(x, 2)", "snp.left_shift(x, 1)", "snp.isclose(x, 1)",
    "snp.einsum('i,i', x, x)", "snp.einsum('ij->i', m)", "snp.einsum('i,i', x, 1.5 * np.ones(4))", "snp.dot(m, m)", "snp.matmul(m, m)", "snp.matmul(m, m, preferred_element_type='f4')", "snp.dot(x, x, preferred_element_type='i4')", "snp.tensordot(m, m)", "snp.cross(m, m)", "snp.linalg.cross(m, m)", "snp.vecmat(m[0], m)", "snp.matvec(m, m[0])", "snp.kron(m, m)",
    "snp.concatenate([x, x])", "snp.concatenate([x, snp.ones(2)])", "snp.stack([x, x])", "snp.hstack([x, 1])", "snp.append(x, 1)", "snp.append(x, 1.5)", "snp.insert(x, 1, 1)", "snp.insert(x, 1, 1.5)", "snp.delete(x, 1)", "snp.pad(x, 1)", "snp.pad(x, 1, constant_values=1.5)", "snp.pad(x, 1, mode='mean')", "snp.pad(x, 1, mode='linear_ramp')", "snp.pad(x, 1, mode='median')", "snp.tile(x, 2)", "snp.repeat(x, 2)", "snp.resize(x, 6)", "snp.block([x, x])", "snp.column_stack([x, x])", "snp.broadcast_arrays(x, m[:, :1])", "snp.meshgrid(x, x)", "snp.ix_(x, x)", "snp.split(x, 2)", "snp.unstack(x)", "snp.trim_zeros(x)", "snp.take(x, 1)", "snp.take(x, snp.array([1]))", "snp.take_along_axis(x, snp.array([1]), 0)", "snp.put_along_axis(x, snp.array([1]), 1, 0, inplace=False)", "snp.compress(snp.array([True]), x, size=1)", "snp.extract(snp.array([True] * 4), x, size=1)", "snp.place(x, snp.array([True] * 4), snp.array([1]), inplace=False)", "snp.put(x, 1, 1, inplace=False)", "snp.fill_diagonal(m, 1, inplace=False)", "snp.fill_diagonal(m, 1.5, inplace=False)", "x.at[0].set(1)", "x.at[0].set(1.5)", "x.at[0].add(1)", "x.at[0].mul(2)", "x.at[0].max(1)", "x.at[0].get()", "x[0]", "x[snp.array([0])]", "x.at[0].power(2)", "x.at[0].divide(2)", "x.at[0].apply(snp.sin)",
    "snp.packbits(x)", "snp.unpackbits(x)", "snp.indices((2, 2))", "snp.diag_indices(2)", "snp.tril_indices(2)", "snp.triu_indices_from(m)", "snp.tri(3)", "snp.mask_indices(3, snp.triu)", "snp.unravel_index(x, (2, 2))", "snp.ravel_multi_index((x, x), (2, 2), mode='clip')", "snp.bartlett(4)", "snp.blackman(4)", "snp.hamming(4)", "snp.hanning(4)", "snp.kaiser(4, 2.0)", "snp.vander(x, 3)", "snp.polyfit(x, x, 1)", "snp.polyder(x)", "snp.polyint(x)", "snp.polyval(x, 2)", "snp.polyval(x, 2.5)", "snp.poly(x)", "snp.poly(m)", "snp.roots(x)", "snp.fromfunction(lambda i, j: i + j, (2, 2))", "snp.apply_along_axis(snp.sum, 0, m)", "snp.apply_over_axes(snp.sum, m, [0])", "snp.vectorize(lambda v: v * 2)(x)", "snp.result_type(x)", "snp.result_type(x, 1)", "snp.result_type(x, 1.5)", "snp.rot90(m)", "snp.rollaxis(m, 1)", "snp.moveaxis(m, 0, 1)", "snp.swapaxes(m, 0, 1)", "snp.array_equal(x, x)", "snp.isin(x, x)", "snp.size(x)", "snp.ndim(x)",
    *(f"snp.linalg.{name}(m)" for name in "cholesky cond det eig eigh eigvals eigvalsh inv matrix_norm matrix_rank norm pinv qr slogdet svd svdvals diagonal trace vector_norm matrix_transpose".split()),
    "snp.linalg.norm(x)", "snp.linalg.norm(x, 1)", "snp.linalg.norm(x, 0)", "snp.linalg.norm(x, snp.inf)", "snp.linalg.norm(m, 'nuc')", "snp.linalg.norm(m, 2)", "snp.linalg.norm(m, 1)", "snp.linalg.norm(x, 3)", "snp.linalg.vector_norm(x, ord=0)", "snp.linalg.lstsq(m, m)", "snp.linalg.solve(m, m)", "snp.linalg.matrix_power(m, 2)", "snp.linalg.matrix_power(m, -1)", "snp.linalg.multi_dot([m, m, m])", "snp.linalg.outer(x, x)", "snp.linalg.tensorinv(m, ind=1)", "snp.linalg.tensorsolve(m, m[0])", "snp.linalg.vecdot(x, x)", "snp.linalg.qr(m, mode='r')", "snp.linalg.svd(m, compute_uv=False)", "snp.linalg.cond(m, 1)",
    *(f"snp.fft.{name}(x)" for name in "fft ifft rfft irfft hfft ihfft fftshift ifftshift fftn ifftn rfftn irfftn".split()),
    "snp.fft.fft2(m)", "snp.fft.rfft2(m)", "snp.fft.irfft2(m)", "snp.fft.ifft2(m)", "snp.fft.fftfreq(4)", "snp.fft.rfftfreq(4)", "snp.fft.fftfreq(4, d=x[0])",
    *(f"lax.{name}(x)" for name in "abs acos acosh asin asinh atan atanh bessel_i0e bessel_i1e bitwise_not cbrt ceil clz conj cos cosh cummax cummin cumprod cumsum cumlogsumexp digamma erf erf_inv erfc exp exp2 expm1 floor imag is_finite lgamma log log1p logistic neg population_count real reciprocal round rsqrt sign sin sinh sqrt square tan tanh sort stop_gradient".split()),
    *(f"lax.{name}(x, x)" for name in "add atan2 bitwise_and bitwise_or bitwise_xor complex div eq ge gt igamma igammac le lt max min mul ne nextafter pow rem shift_left shift_right_arithmetic shift_right_logical sub zeta polygamma sort_key_val".split()),
    "lax.integer_pow(x, 3)", "lax.argmax(x, 0, 'i4')", "lax.top_k(x, 2)", "lax.approx_max_k(x, 2)", "lax.iota('f4', 3)", "lax.clamp(x, x, x)", "lax.clamp(x[0], x, x[0])", "lax.convert_element_type(x, float)", "lax.convert_element_type(x, int)", "lax.convert_element_type(x, 'i1')", "lax.bitcast_convert_type(x, 'u1')", "lax.select(snp.array([True] * 4), x, x)", "lax.full((2,), 1)", "lax.full((2,), 1.5)", "lax.full_like(x, 1)", "lax.full_like(x, 1.5)", "lax.add(x, 1)", "lax.mul(x, 2)", "lax.pow(x, 2)", "lax.pow(x, 2.0)", "lax.max(x, 0)", "lax.dot(m, m)", "lax.dot_general(m, m, (((1,), (0,)), ((), ())))", "lax.reduce_sum(x, (0,))", "lax.reduce_max(x, (0,))", "lax.reduce_prod(x, (0,))", "lax.reduce_and(x, (0,))", "lax.reduce(x, x[0], lax.add, (0,))", "lax.pad(x, x[0], [(1, 1, 0)])", "lax.dynamic_slice(x, (0,), (2,))", "lax.concatenate([x, x], 0)", "lax.fori_loop(0, 3, lambda i, v: v, x)", "lax.fori_loop(0, 3, lambda i, v: v + i, 0)", "lax.scan(lambda c, v: (c, v), 1, x)", "lax.scan(lambda c, v: (c, v), 1.0, x)", "lax.map(lambda v: v * 2, x)", "lax.cond(True, lambda: x, lambda: x)", "lax.while_loop(lambda v: False, lambda v: v, x)", "lax.associative_scan(snp.add, x)", "lax.reduce_precision(x, 5, 10)", "lax.collapse(m, 0)", "lax.linalg.lu(m)", "lax.linalg.cholesky(m)", "lax.linalg.svd(m)", "lax.linalg.eigh(m)", "lax.linalg.qr(m)", "lax.conv(x[None, None], x[None, None], (1,), 'SAME')", "lax.reduce_window(x, x[0], lax.add, (2,), (1,), 'VALID')", "lax.batch_matmul(m[None], m[None])", "lax.fft(x, 'fft', (4,))", "lax.broadcasted_iota('i4', (2, 2), 0)", "lax.betainc(x, x, x)", "lax.expand_dims(x, (0,))",
    *(f"nn.{name}(x)" for name in "celu elu gelu glu hard_sigmoid hard_silu hard_swish hard_tanh identity leaky_relu log_sigmoid log_softmax logsumexp logmeanexp mish relu relu6 selu sigmoid silu soft_sign softmax softplus sparse_plus sparse_sigmoid squareplus standardize swish tanh log1mexp".split()),
    "nn.one_hot(x, 3)", "nn.one_hot(x, 3, dtype=int)", "nn.logsumexp(x, b=2)", "nn.logsumexp(m, axis=0)", "nn.logsumexp(x, return_sign=True)", "nn.gelu(x, approximate=False)", "nn.dot_product_attention(m[None, :, None], m[None, :, None], m[None, :, None])", "nn.leaky_relu(x, 1)", "nn.elu(x, 2)", "nn.softmax(x, where=snp.array([True] * 4))",
    *(f"special.{name}(x)" for name in "digamma entr erf erfc erfinv expit exprel factorial gamma gammaln gammasgn i0 i0e i1 i1e log_ndtr log_softmax logit logsumexp ndtr ndtri psi softmax".split()),
    *(f"special.{name}(x, x)" for name in "beta betaln gammainc gammaincc kl_div poch rel_entr xlog1py xlogy zeta polygamma".split()),
    "special.betainc(x, x, x)", "special.multigammaln(x, 2)", "special.xlogy(x, 2)", "special.zeta(x, 2)", "special.polygamma(1, x)", "special.logsumexp(x, b=x)",
    *(f"linalg.{name}(m)" for name in "cholesky det eigh expm inv lu lu_factor polar qr sqrtm svd block_diag cho_factor".split()),
    "linalg.solve(m, m)", "linalg.solve_triangular(m, m)", "linalg.cho_solve((m, True), m)", "linalg.toeplitz(x)", "linalg.hilbert(3)", "linalg.pascal(3)", "linalg.dft(3)", "linalg.hankel(x)", "linalg.circulant(x)", "linalg.companion(x)", "linalg.hadamard(4)", "linalg.helmert(3)", "linalg.leslie(x, x[:3])", "linalg.fiedler(x)", "linalg.expm_frechet(m, m)", "linalg.solve_sylvester(m, m, m)", "linalg.eigh_tridiagonal(x, x[:3], eigvals_only=True)", "linalg.convolution_matrix(x, 5)", "linalg.invhilbert(3)", "linalg.invpascal(3)",
    "random.uniform(random.key(0), (2,))", "random.normal(random.key(0))", "random.randint(random.key(0), (2,), 0, 4)", "random.bits(random.key(0))", "random.bernoulli(random.key(0))", "random.bernoulli(random.key(0), x)", "random.permutation(random.key(0), 4)", "random.permutation(random.key(0), x)", "random.choice(random.key(0), 4)", "random.choice(random.key(0), x)", "random.categorical(random.key(0), x)", "random.gumbel(random.key(0))", "random.exponential(random.key(0))", "random.laplace(random.key(0))", "random.gamma(random.key(0), x)", "random.beta(random.key(0), x, x)", "random.poisson(random.key(0), x)", "random.binomial(random.key(0), x, 0.5)", "random.dirichlet(random.key(0), x)", "random.multivariate_normal(random.key(0), m[0], m)", "random.truncated_normal(random.key(0), x, x)", "random.uniform(random.key(0), (4,), minval=x)", "random.geometric(random.key(0), 0.5)", "random.t(random.key(0), x)", "random.cauchy(random.key(0))", "random.rademacher(random.key(0))", "random.randint(random.key(0), (4,), 0, x)", "random.randint(random.key(0), (4,), 0, 4, dtype='u1')", "random.ball(random.key(0), 2)", "random.orthogonal(random.key(0), 2)", "random.lognormal(random.key(0))", "random.maxwell(random.key(0))", "random.pareto(random.key(0), x)", "random.rayleigh(random.key(0), x)", "random.wald(random.key(0), x)", "random.weibull_min(random.key(0), x, x)", "random.triangular(random.key(0), x, x, x)", "random.chisquare(random.key(0), x)", "random.f(random.key(0), x, x)", "random.logistic(random.key(0))", "random.multinomial(random.key(0), x, snp.array([.5, .5]))", "random.generalized_normal(random.key(0), 2.0)", "random.key_data(random.key(0))", "random.loggamma(random.key(0), x)", "random.double_sided_maxwell(random.key(0), 0., 1.)",
    "segment(x, snp.array([0, 0, 1, 1]), 2)",
]  # fmt: skip

PAIRS = [
    *(f"snp.{name}(x, y)" for name in BINARY),
    *(f"snp.{name}(x, y)" for name in BINARY_OF_VECTORS if not name.endswith("_")),
    "snp.where(snp.array([True] * 4), x, y)", "snp.concatenate([x, y])", "snp.stack([x, y])", "snp.interp(x, y, y)",
    "snp.einsum('i,j->ij', x, y)", "snp.result_type(x, y)", "snp.promote_types(x.dtype, y.dtype)", "snp.clip(x, y)", "snp.clip(x, y, 1)", "snp.average(x, weights=y)", "snp.trapezoid(x, y)", "snp.linspace(x, y, 3)", "snp.cov(x, y)", "snp.union1d(x, y, size=3)", "snp.setdiff1d(x, y, size=3)", "snp.logspace(x, y, 3)", "snp.geomspace(x, y, 3)", "x.at[snp.arange(4)].set(y)", "x.at[snp.arange(4)].add(y)", "snp.select([snp.array([True] * 4)], [x], y)", "special.xlogy(x, y)", "special.zeta(x, y)", "special.betaln(x, y)", "nn.logsumexp(x, b=y)", "lax.complex(x, y)", "lax.add(x, y)", "lax.shift_left(x, y)", "lax.pow(x, y)", "lax.atan2(x, y)", "lax.dot_general(x, y, (((0,), (0,)), ((), ())))", "lax.dot_general(x, y, (((0,), (0,)), ((), ())), preferred_element_type='f4')", "snp.full_like(x, y, dtype=None)", "snp.insert(x, 1, y)", "snp.append(x, y)", "snp.digitize(x, y)", "snp.polyfit(x, y, 1)", "x + y", "x - y", "x * y", "x / y", "x // y", "x % y", "x ** y", "x @ y", "x & y", "x << y", "x >> y", "x == y", "x < y", "divmod(x, y)",
]  # fmt: skip

DTYPES = "bool u8 u16 u32 u64 i8 i16 i32 i64 f16 bf16 f32 f64 c64 c128".split()
PYTHON_SCALARS = {"True": True, "1": 1, "1.0": 1.0, "1j": 1j}
COLUMNS = [*DTYPES, *PYTHON_SCALARS]
