"""The namespace `shardir.lax`: functions that correspond closely to operations of the IR."""

from shardir.frontend.lax import linalg as linalg
from shardir.frontend.lax.approximate_top_k import (
    approx_max_k as approx_max_k,
    approx_min_k as approx_min_k,
)
from shardir.frontend.lax.collective_ops.collectives import (
    all_gather as all_gather,
    all_to_all as all_to_all,
    axis_index as axis_index,
    axis_size as axis_size,
    pbroadcast as pbroadcast,
    pcast as pcast,
    pmax as pmax,
    pmean as pmean,
    pmin as pmin,
    ppermute as ppermute,
    pshuffle as pshuffle,
    psum as psum,
    psum_scatter as psum_scatter,
    pswapaxes as pswapaxes,
    pvary as pvary,
)
from shardir.frontend.lax.collective_ops.ragged_exchange import (
    ragged_all_to_all as ragged_all_to_all,
)
from shardir.frontend.lax.contraction import (
    DotDimensionNumbers as DotDimensionNumbers,
    RaggedDotDimensionNumbers as RaggedDotDimensionNumbers,
    batch_matmul as batch_matmul,
    dot as dot,
    dot_general as dot_general,
    ragged_dot as ragged_dot,
    ragged_dot_general as ragged_dot_general,
)
from shardir.frontend.lax.control_flow.branches import (
    cond as cond,
    platform_dependent as platform_dependent,
    switch as switch,
)
from shardir.frontend.lax.control_flow.custom_solves import (
    custom_linear_solve as custom_linear_solve,
    custom_root as custom_root,
)
from shardir.frontend.lax.control_flow.loops import (
    fori_loop as fori_loop,
    map as map,
    scan as scan,
    while_loop as while_loop,
)
from shardir.frontend.lax.convolutions.conv_transpose import conv_transpose as conv_transpose
from shardir.frontend.lax.convolutions.convolution import (
    ConvDimensionNumbers as ConvDimensionNumbers,
    ConvGeneralDilatedDimensionNumbers as ConvGeneralDilatedDimensionNumbers,
    conv as conv,
    conv_dimension_numbers as conv_dimension_numbers,
    conv_general_dilated as conv_general_dilated,
    conv_with_general_padding as conv_with_general_padding,
    padtype_to_pads as padtype_to_pads,
)
from shardir.frontend.lax.convolutions.patches import (
    conv_general_dilated_local as conv_general_dilated_local,
    conv_general_dilated_patches as conv_general_dilated_patches,
)
from shardir.frontend.lax.convolutions.result_shapes import (
    conv_general_permutations as conv_general_permutations,
    conv_general_shape_tuple as conv_general_shape_tuple,
    conv_shape_tuple as conv_shape_tuple,
    conv_transpose_shape_tuple as conv_transpose_shape_tuple,
    reduce_window_shape_tuple as reduce_window_shape_tuple,
)
from shardir.frontend.lax.convolutions.window_reductions import (
    reduce as reduce,
    reduce_window as reduce_window,
    reduce_xor as reduce_xor,
)
from shardir.frontend.lax.data_movement import (
    broadcast as broadcast,
    broadcast_in_dim as broadcast_in_dim,
    broadcast_shapes as broadcast_shapes,
    broadcasted_iota as broadcasted_iota,
    collapse as collapse,
    concatenate as concatenate,
    expand_dims as expand_dims,
    full as full,
    full_like as full_like,
    iota as iota,
    optimization_barrier as optimization_barrier,
    pad as pad,
    reshape as reshape,
    rev as rev,
    split as split,
    squeeze as squeeze,
    stack as stack,
    tile as tile,
    transpose as transpose,
    unstack as unstack,
)
from shardir.frontend.lax.elementwise import (
    RoundingMethod as RoundingMethod,
    abs as abs,
    acos as acos,
    acosh as acosh,
    add as add,
    asin as asin,
    asinh as asinh,
    atan as atan,
    atan2 as atan2,
    atanh as atanh,
    bitcast_convert_type as bitcast_convert_type,
    bitwise_and as bitwise_and,
    bitwise_not as bitwise_not,
    bitwise_or as bitwise_or,
    bitwise_xor as bitwise_xor,
    cbrt as cbrt,
    ceil as ceil,
    clamp as clamp,
    clz as clz,
    complex as complex,
    conj as conj,
    convert_element_type as convert_element_type,
    cos as cos,
    cosh as cosh,
    digamma as digamma,
    div as div,
    eq as eq,
    erf as erf,
    erf_inv as erf_inv,
    erfc as erfc,
    exp as exp,
    exp2 as exp2,
    expm1 as expm1,
    floor as floor,
    ge as ge,
    gt as gt,
    imag as imag,
    integer_pow as integer_pow,
    is_finite as is_finite,
    le as le,
    lgamma as lgamma,
    log as log,
    log1p as log1p,
    logistic as logistic,
    lt as lt,
    max as max,
    min as min,
    mul as mul,
    mulhi as mulhi,
    ne as ne,
    neg as neg,
    nextafter as nextafter,
    population_count as population_count,
    pow as pow,
    real as real,
    reciprocal as reciprocal,
    rem as rem,
    round as round,
    rsqrt as rsqrt,
    select as select,
    select_n as select_n,
    shift_left as shift_left,
    shift_right_arithmetic as shift_right_arithmetic,
    shift_right_logical as shift_right_logical,
    sign as sign,
    sin as sin,
    sinh as sinh,
    sqrt as sqrt,
    square as square,
    stage as stage,
    stop_gradient as stop_gradient,
    sub as sub,
    tan as tan,
    tanh as tanh,
)
from shardir.frontend.lax.fourier import FftType as FftType, fft as fft
from shardir.frontend.lax.gather_scatter import (
    GatherDimensionNumbers as GatherDimensionNumbers,
    GatherScatterMode as GatherScatterMode,
    ScatterDimensionNumbers as ScatterDimensionNumbers,
    gather as gather,
    scatter as scatter,
    scatter_add as scatter_add,
    scatter_max as scatter_max,
    scatter_min as scatter_min,
    scatter_mul as scatter_mul,
)
from shardir.frontend.lax.precision_reduction import reduce_precision as reduce_precision
from shardir.frontend.lax.random_bits import (
    RandomAlgorithm as RandomAlgorithm,
    rng_bit_generator as rng_bit_generator,
)
from shardir.frontend.lax.reductions import (
    argmax as argmax,
    argmin as argmin,
    associative_scan as associative_scan,
    cumlogsumexp as cumlogsumexp,
    cummax as cummax,
    cummin as cummin,
    cumprod as cumprod,
    cumsum as cumsum,
    reduce_and as reduce_and,
    reduce_max as reduce_max,
    reduce_min as reduce_min,
    reduce_or as reduce_or,
    reduce_prod as reduce_prod,
    reduce_sum as reduce_sum,
    sort as sort,
    sort_key_val as sort_key_val,
    top_k as top_k,
)
from shardir.frontend.lax.result_accuracy import (
    AccuracyMode as AccuracyMode,
    Tolerance as Tolerance,
)
from shardir.frontend.lax.scaled_dot import scaled_dot as scaled_dot
from shardir.frontend.lax.scatter_helpers import (
    index_take as index_take,
    scatter_apply as scatter_apply,
    scatter_sub as scatter_sub,
)
from shardir.frontend.lax.shape_functions import (
    broadcast_like as broadcast_like,
    broadcast_to_rank as broadcast_to_rank,
    dtype as dtype,
    empty as empty,
    shape_as_value as shape_as_value,
)
from shardir.frontend.lax.sharding_constraints import (
    composite as composite,
    with_sharding_constraint as with_sharding_constraint,
)
from shardir.frontend.lax.slicing import (
    dynamic_index_in_dim as dynamic_index_in_dim,
    dynamic_slice as dynamic_slice,
    dynamic_slice_in_dim as dynamic_slice_in_dim,
    dynamic_update_index_in_dim as dynamic_update_index_in_dim,
    dynamic_update_slice as dynamic_update_slice,
    dynamic_update_slice_in_dim as dynamic_update_slice_in_dim,
    index_in_dim as index_in_dim,
    slice as slice,
    slice_in_dim as slice_in_dim,
)
from shardir.frontend.lax.special_functions import (
    bessel_i0e as bessel_i0e,
    bessel_i1e as bessel_i1e,
    betainc as betainc,
    igamma as igamma,
    igamma_grad_a as igamma_grad_a,
    igammac as igammac,
    polygamma as polygamma,
    random_gamma_grad as random_gamma_grad,
    zeta as zeta,
)
from shardir.frontend.lax.stateful_random import rng_uniform as rng_uniform
from shardir.frontend.numpy.tracer_helpers.dot_algorithms import (
    DotAlgorithm as DotAlgorithm,
    DotAlgorithmPreset as DotAlgorithmPreset,
)
from shardir.frontend.numpy.tracer_helpers.product_precision import (
    Precision as Precision,
    PrecisionLike as PrecisionLike,
)
