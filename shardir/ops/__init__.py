"""The operations, one module per family. Importing this package declares them all.

Input: declarations by `define_op` of `shardir.ir.operation`. Output: operation specifications
(`OpSpec`) in the registry `OPS`, with types, sharding factors, NumPy semantics and derivatives.
Start with `elementwise/elementwise.py` (the simplest operations), then `contraction/dot.py`.
"""

from typing import TYPE_CHECKING, NoReturn

from shardir._imports.lazy_names import unknown_name_error
from shardir.ops.communication.annotations import (
    checkpoint_name as checkpoint_name,
    optimization_barrier as optimization_barrier,
    propagation_barrier as propagation_barrier,
    reshard as reshard,
    sharding_constraint as sharding_constraint,
    sharding_group as sharding_group,
)
from shardir.ops.communication.async_collectives import START_OPS as START_OPS, done as done
from shardir.ops.communication.collectives import (
    all_gather as all_gather,
    all_reduce as all_reduce,
    all_slice as all_slice,
    all_to_all as all_to_all,
    axis_index as axis_index,
    collective_permute as collective_permute,
    reduce_scatter as reduce_scatter,
)
from shardir.ops.contraction.convolution import convolution as convolution
from shardir.ops.contraction.dot import dot as dot
from shardir.ops.control_flow.calls import call as call
from shardir.ops.control_flow.control_flow import case as case, scan as scan, while_ as while_
from shardir.ops.control_flow.custom_partitioning import (
    custom_partitioning as custom_partitioning,
)
from shardir.ops.control_flow.derivative_regions import (
    checkpoint as checkpoint,
    custom_jvp as custom_jvp,
    custom_vjp as custom_vjp,
)
from shardir.ops.control_flow.fused import fused as fused
from shardir.ops.control_flow.fused_products import fused_products as fused_products
from shardir.ops.control_flow.host_callbacks import (
    callback as callback,
    inspect_sharding as inspect_sharding,
    pure_callback as pure_callback,
)
from shardir.ops.control_flow.manual_computation import (
    manual_computation as manual_computation,
    vary as vary,
)
from shardir.ops.control_flow.pipelines import (
    pipeline as pipeline,
    pipeline_call as pipeline_call,
    pipeline_stage as pipeline_stage,
    staged_pipeline as staged_pipeline,
)
from shardir.ops.elementwise.bitcast import bitcast as bitcast
from shardir.ops.elementwise.elementwise import (
    abs_ as abs_,
    acos as acos,
    acosh as acosh,
    add as add,
    and_ as and_,
    asin as asin,
    asinh as asinh,
    atan as atan,
    atan2 as atan2,
    atanh as atanh,
    cbrt as cbrt,
    ceil as ceil,
    clz as clz,
    complex_ as complex_,
    conj as conj,
    convert as convert,
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
    is_finite as is_finite,
    le as le,
    lgamma as lgamma,
    log as log,
    log1p as log1p,
    log2 as log2,
    logistic as logistic,
    lt as lt,
    maximum as maximum,
    minimum as minimum,
    mul as mul,
    ne as ne,
    neg as neg,
    nextafter as nextafter,
    not_ as not_,
    or_ as or_,
    popcnt as popcnt,
    pow_ as pow_,
    real as real,
    rem as rem,
    round_ as round_,
    rsqrt as rsqrt,
    shift_left as shift_left,
    shift_right_arithmetic as shift_right_arithmetic,
    shift_right_logical as shift_right_logical,
    sign as sign,
    sin as sin,
    sinh as sinh,
    sqrt as sqrt,
    stop_gradient as stop_gradient,
    sub as sub,
    tan as tan,
    tanh as tanh,
    xor as xor,
)
from shardir.ops.elementwise.select_and_clamp import clamp as clamp, select as select
from shardir.ops.indexing.gather_scatter import gather as gather, scatter as scatter
from shardir.ops.linalg.eigen import eig as eig, eigh as eigh, svd as svd
from shardir.ops.linalg.factorizations import lu as lu, qr as qr
from shardir.ops.linalg.fft import fft as fft
from shardir.ops.linalg.least_squares import least_squares as least_squares
from shardir.ops.linalg.pinv import pinv as pinv
from shardir.ops.linalg.schur import schur as schur
from shardir.ops.linalg.triangular import cholesky as cholesky, triangular_solve as triangular_solve
from shardir.ops.opaque import opaque as opaque
from shardir.ops.random.random_bits import (
    random_bits as random_bits,
    random_bits_at as random_bits_at,
    random_fold_in as random_fold_in,
    random_hash as random_hash,
    random_split as random_split,
    random_split_at as random_split_at,
)
from shardir.ops.reductions.cumulative import (
    cumlogsumexp as cumlogsumexp,
    cummax as cummax,
    cummin as cummin,
    cumprod as cumprod,
    cumsum as cumsum,
)
from shardir.ops.reductions.reduce import (
    all_ as all_,
    any_ as any_,
    argmax as argmax,
    argmin as argmin,
    max_ as max_,
    min_ as min_,
    prod as prod,
    sum_ as sum_,
)
from shardir.ops.reductions.sort import sort as sort, top_k as top_k
from shardir.ops.reductions.window import (
    reduce_window as reduce_window,
    select_and_scatter as select_and_scatter,
)
from shardir.ops.shape.create import constant as constant, iota as iota
from shardir.ops.shape.rearrangements import (
    broadcast as broadcast,
    concatenate as concatenate,
    reshape as reshape,
    reverse as reverse,
    roll as roll,
    transpose as transpose,
)
from shardir.ops.shape.slicing import (
    dynamic_slice as dynamic_slice,
    dynamic_update_slice as dynamic_update_slice,
    pad as pad,
    slice_ as slice_,
)

if not TYPE_CHECKING:

    def __getattr__(name: str) -> NoReturn:
        raise unknown_name_error(__name__, name, list(globals()))
