"""NumPy's functions on tracers and arrays, in one module per family.

The functions have the names and arguments of `jax.numpy` and follow NumPy's rules, with JAX's type
promotion.
"""

from shardir.frontend.numpy import fft as fft
from shardir.frontend.numpy.aliases import (
    ComplexWarning as ComplexWarning,
    bool as bool,
    ndarray as ndarray,
    pow as pow,
)
from shardir.frontend.numpy.array_api_info import (
    __array_api_version__ as __array_api_version__,
    __array_namespace_info__ as __array_namespace_info__,
)
from shardir.frontend.numpy.creation.array_conversion import (
    array as array,
    asarray as asarray,
    copy as copy,
)
from shardir.frontend.numpy.creation.diagonal_matrices import (
    diag as diag,
    diagflat as diagflat,
    eye as eye,
    identity as identity,
    tri as tri,
    tril as tril,
    triu as triu,
)
from shardir.frontend.numpy.creation.file_io import (
    array_repr as array_repr,
    array_str as array_str,
    from_dlpack as from_dlpack,
    frombuffer as frombuffer,
    fromfile as fromfile,
    fromiter as fromiter,
    fromstring as fromstring,
    get_printoptions as get_printoptions,
    load as load,
    printoptions as printoptions,
    save as save,
    savez as savez,
    set_printoptions as set_printoptions,
)
from shardir.frontend.numpy.creation.filling import (
    empty as empty,
    empty_like as empty_like,
    full as full,
    full_like as full_like,
    ones as ones,
    ones_like as ones_like,
    zeros as zeros,
    zeros_like as zeros_like,
)
from shardir.frontend.numpy.creation.grids import (
    fromfunction as fromfunction,
    geomspace as geomspace,
    indices as indices,
    linspace as linspace,
    logspace as logspace,
    meshgrid as meshgrid,
    mgrid as mgrid,
    ogrid as ogrid,
    vander as vander,
)
from shardir.frontend.numpy.creation.index_expressions import (
    c_ as c_,
    index_exp as index_exp,
    r_ as r_,
    s_ as s_,
)
from shardir.frontend.numpy.creation.ranges import arange as arange
from shardir.frontend.numpy.creation.triangle_indices import (
    diag_indices as diag_indices,
    diag_indices_from as diag_indices_from,
    fill_diagonal as fill_diagonal,
    mask_indices as mask_indices,
    tril_indices as tril_indices,
    tril_indices_from as tril_indices_from,
    triu_indices as triu_indices,
    triu_indices_from as triu_indices_from,
)
from shardir.frontend.numpy.creation.window_functions import (
    bartlett as bartlett,
    blackman as blackman,
    hamming as hamming,
    hanning as hanning,
    kaiser as kaiser,
)
from shardir.frontend.numpy.dtypes import (
    astype as astype,
    bfloat16 as bfloat16,
    bool_ as bool_,
    can_cast as can_cast,
    cdouble as cdouble,
    character as character,
    complex64 as complex64,
    complex128 as complex128,
    complex_ as complex_,
    complexfloating as complexfloating,
    csingle as csingle,
    double as double,
    dtype as dtype,
    e as e,
    euler_gamma as euler_gamma,
    finfo as finfo,
    flexible as flexible,
    float4_e2m1fn as float4_e2m1fn,
    float8_e3m4 as float8_e3m4,
    float8_e4m3 as float8_e4m3,
    float8_e4m3b11fnuz as float8_e4m3b11fnuz,
    float8_e4m3fn as float8_e4m3fn,
    float8_e4m3fnuz as float8_e4m3fnuz,
    float8_e5m2 as float8_e5m2,
    float8_e5m2fnuz as float8_e5m2fnuz,
    float8_e8m0fnu as float8_e8m0fnu,
    float16 as float16,
    float32 as float32,
    float64 as float64,
    float_ as float_,
    floating as floating,
    generic as generic,
    iinfo as iinfo,
    inexact as inexact,
    inf as inf,
    int2 as int2,
    int4 as int4,
    int8 as int8,
    int16 as int16,
    int32 as int32,
    int64 as int64,
    int_ as int_,
    integer as integer,
    isdtype as isdtype,
    issubdtype as issubdtype,
    nan as nan,
    newaxis as newaxis,
    number as number,
    object_ as object_,
    pi as pi,
    promote_types as promote_types,
    result_type as result_type,
    signedinteger as signedinteger,
    single as single,
    uint as uint,
    uint2 as uint2,
    uint4 as uint4,
    uint8 as uint8,
    uint16 as uint16,
    uint32 as uint32,
    uint64 as uint64,
    unsignedinteger as unsignedinteger,
)
from shardir.frontend.numpy.elementwise.arithmetic import (
    add as add,
    divide as divide,
    divmod as divmod,
    float_power as float_power,
    floor_divide as floor_divide,
    fmod as fmod,
    mod as mod,
    multiply as multiply,
    negative as negative,
    positive as positive,
    power as power,
    remainder as remainder,
    subtract as subtract,
    true_divide as true_divide,
)
from shardir.frontend.numpy.elementwise.bit_packing import (
    packbits as packbits,
    unpackbits as unpackbits,
)
from shardir.frontend.numpy.elementwise.bits import (
    bitwise_and as bitwise_and,
    bitwise_count as bitwise_count,
    bitwise_invert as bitwise_invert,
    bitwise_left_shift as bitwise_left_shift,
    bitwise_not as bitwise_not,
    bitwise_or as bitwise_or,
    bitwise_right_shift as bitwise_right_shift,
    bitwise_xor as bitwise_xor,
    gcd as gcd,
    invert as invert,
    lcm as lcm,
    left_shift as left_shift,
    right_shift as right_shift,
)
from shardir.frontend.numpy.elementwise.comparison import (
    allclose as allclose,
    array_equal as array_equal,
    array_equiv as array_equiv,
    equal as equal,
    greater as greater,
    greater_equal as greater_equal,
    isclose as isclose,
    less as less,
    less_equal as less_equal,
    logical_and as logical_and,
    logical_not as logical_not,
    logical_or as logical_or,
    logical_xor as logical_xor,
    not_equal as not_equal,
)
from shardir.frontend.numpy.elementwise.complex_parts import (
    abs as abs,
    absolute as absolute,
    angle as angle,
    conj as conj,
    conjugate as conjugate,
    imag as imag,
    real as real,
    sign as sign,
    square as square,
)
from shardir.frontend.numpy.elementwise.float_parts import (
    copysign as copysign,
    frexp as frexp,
    iscomplex as iscomplex,
    isfinite as isfinite,
    isinf as isinf,
    isnan as isnan,
    isneginf as isneginf,
    isposinf as isposinf,
    isreal as isreal,
    ldexp as ldexp,
    modf as modf,
    nan_to_num as nan_to_num,
    nextafter as nextafter,
    signbit as signbit,
    spacing as spacing,
)
from shardir.frontend.numpy.elementwise.math_functions import (
    acos as acos,
    acosh as acosh,
    arccos as arccos,
    arccosh as arccosh,
    arcsin as arcsin,
    arcsinh as arcsinh,
    arctan as arctan,
    arctan2 as arctan2,
    arctanh as arctanh,
    asin as asin,
    asinh as asinh,
    atan as atan,
    atan2 as atan2,
    atanh as atanh,
    cbrt as cbrt,
    cos as cos,
    cosh as cosh,
    deg2rad as deg2rad,
    degrees as degrees,
    exp as exp,
    exp2 as exp2,
    expm1 as expm1,
    fabs as fabs,
    heaviside as heaviside,
    hypot as hypot,
    log as log,
    log1p as log1p,
    log2 as log2,
    log10 as log10,
    logaddexp as logaddexp,
    logaddexp2 as logaddexp2,
    rad2deg as rad2deg,
    radians as radians,
    reciprocal as reciprocal,
    sin as sin,
    sinc as sinc,
    sinh as sinh,
    sqrt as sqrt,
    tan as tan,
    tanh as tanh,
)
from shardir.frontend.numpy.elementwise.rounding import (
    around as around,
    ceil as ceil,
    fix as fix,
    floor as floor,
    rint as rint,
    round as round,
    trunc as trunc,
)
from shardir.frontend.numpy.elementwise.selection import (
    clip as clip,
    fmax as fmax,
    fmin as fmin,
    maximum as maximum,
    minimum as minimum,
    piecewise as piecewise,
    select as select,
)
from shardir.frontend.numpy.function_application import (
    apply_along_axis as apply_along_axis,
    apply_over_axes as apply_over_axes,
)
from shardir.frontend.numpy.indexing.nonzero import (
    argwhere as argwhere,
    flatnonzero as flatnonzero,
    ix_ as ix_,
    nonzero as nonzero,
    place as place,
    ravel_multi_index as ravel_multi_index,
    unravel_index as unravel_index,
    where as where,
)
from shardir.frontend.numpy.indexing.selection_by_index import (
    choose as choose,
    compress as compress,
    extract as extract,
    put as put,
    put_along_axis as put_along_axis,
)
from shardir.frontend.numpy.indexing.take import take as take, take_along_axis as take_along_axis
from shardir.frontend.numpy.linear_algebra import linalg as linalg
from shardir.frontend.numpy.linear_algebra.contraction import (
    dot as dot,
    inner as inner,
    kron as kron,
    matmul as matmul,
    matvec as matvec,
    outer as outer,
    tensordot as tensordot,
    vdot as vdot,
    vecdot as vecdot,
    vecmat as vecmat,
)
from shardir.frontend.numpy.linear_algebra.cross_and_trace import cross as cross, trace as trace
from shardir.frontend.numpy.linear_algebra.diagonals import diagonal as diagonal
from shardir.frontend.numpy.linear_algebra.einsum import (
    einsum as einsum,
    einsum_path as einsum_path,
)
from shardir.frontend.numpy.polynomial_fitting import (
    i0 as i0,
    iterable as iterable,
    poly as poly,
    polydiv as polydiv,
    polyfit as polyfit,
    roots as roots,
)
from shardir.frontend.numpy.polynomials import (
    convolve as convolve,
    correlate as correlate,
    polyadd as polyadd,
    polyder as polyder,
    polyint as polyint,
    polymul as polymul,
    polysub as polysub,
    polyval as polyval,
)
from shardir.frontend.numpy.reductions.basic_reductions import (
    all as all,
    amax as amax,
    amin as amin,
    any as any,
    argmax as argmax,
    argmin as argmin,
    count_nonzero as count_nonzero,
    max as max,
    mean as mean,
    min as min,
    prod as prod,
    ptp as ptp,
    sum as sum,
)
from shardir.frontend.numpy.reductions.cumulative import (
    cumprod as cumprod,
    cumsum as cumsum,
    cumulative_prod as cumulative_prod,
    cumulative_sum as cumulative_sum,
    diff as diff,
    ediff1d as ediff1d,
    gradient as gradient,
    nancumprod as nancumprod,
    nancumsum as nancumsum,
    trapezoid as trapezoid,
    unwrap as unwrap,
)
from shardir.frontend.numpy.reductions.histograms import (
    bincount as bincount,
    histogram as histogram,
    histogram2d as histogram2d,
    histogram_bin_edges as histogram_bin_edges,
    histogramdd as histogramdd,
)
from shardir.frontend.numpy.reductions.nan_reductions import (
    nanargmax as nanargmax,
    nanargmin as nanargmin,
    nanmax as nanmax,
    nanmean as nanmean,
    nanmin as nanmin,
    nanprod as nanprod,
    nanstd as nanstd,
    nansum as nansum,
    nanvar as nanvar,
)
from shardir.frontend.numpy.reductions.quantiles import (
    median as median,
    nanmedian as nanmedian,
    nanpercentile as nanpercentile,
    nanquantile as nanquantile,
    percentile as percentile,
    quantile as quantile,
)
from shardir.frontend.numpy.reductions.statistics import (
    average as average,
    corrcoef as corrcoef,
    cov as cov,
    std as std,
    var as var,
)
from shardir.frontend.numpy.shaping.concatenation import (
    append as append,
    array_split as array_split,
    block as block,
    column_stack as column_stack,
    concat as concat,
    concatenate as concatenate,
    dsplit as dsplit,
    dstack as dstack,
    hsplit as hsplit,
    hstack as hstack,
    split as split,
    stack as stack,
    unstack as unstack,
    vsplit as vsplit,
    vstack as vstack,
)
from shardir.frontend.numpy.shaping.padding import pad as pad
from shardir.frontend.numpy.shaping.repetition import (
    delete as delete,
    insert as insert,
    repeat as repeat,
    trim_zeros as trim_zeros,
)
from shardir.frontend.numpy.shaping.reshaping import (
    atleast_1d as atleast_1d,
    atleast_2d as atleast_2d,
    atleast_3d as atleast_3d,
    broadcast_arrays as broadcast_arrays,
    broadcast_shapes as broadcast_shapes,
    broadcast_to as broadcast_to,
    expand_dims as expand_dims,
    flip as flip,
    fliplr as fliplr,
    flipud as flipud,
    matrix_transpose as matrix_transpose,
    moveaxis as moveaxis,
    permute_dims as permute_dims,
    ravel as ravel,
    reshape as reshape,
    rollaxis as rollaxis,
    rot90 as rot90,
    squeeze as squeeze,
    swapaxes as swapaxes,
    transpose as transpose,
)
from shardir.frontend.numpy.shaping.rolling import roll as roll
from shardir.frontend.numpy.shaping.tiling import resize as resize, tile as tile
from shardir.frontend.numpy.sorting.searching import (
    digitize as digitize,
    interp as interp,
    searchsorted as searchsorted,
)
from shardir.frontend.numpy.sorting.sets import (
    intersect1d as intersect1d,
    isin as isin,
    setdiff1d as setdiff1d,
    setxor1d as setxor1d,
    union1d as union1d,
)
from shardir.frontend.numpy.sorting.sort_functions import (
    argpartition as argpartition,
    argsort as argsort,
    lexsort as lexsort,
    partition as partition,
    sort as sort,
    sort_complex as sort_complex,
)
from shardir.frontend.numpy.sorting.unique import (
    unique as unique,
    unique_all as unique_all,
    unique_counts as unique_counts,
    unique_inverse as unique_inverse,
    unique_values as unique_values,
)
from shardir.frontend.numpy.tracer_helpers.inspection import (
    iscomplexobj as iscomplexobj,
    isrealobj as isrealobj,
    isscalar as isscalar,
    ndim as ndim,
    shape as shape,
    size as size,
)
from shardir.frontend.numpy.ufunc import ufunc as ufunc
from shardir.frontend.numpy.universal_functions import frompyfunc as frompyfunc
from shardir.frontend.numpy.vectorization import vectorize as vectorize
