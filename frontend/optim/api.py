"""Optimizers as pairs of pure functions on containers of arrays.

`init(params)` returns a state, `update(gradients, state, params)` returns updates and the next
state, and `apply_updates` adds updates to parameters. All of these are containers of arrays, which
can be traced, batched, differentiated and sharded; optimizers are chains of gradient
transformations.
"""

from shardir.frontend.optim.gradient_scaling import (
    add_decayed_weights as add_decayed_weights,
    clip as clip,
    clip_by_global_norm as clip_by_global_norm,
    global_norm as global_norm,
    scale as scale,
    scale_by_adam as scale_by_adam,
    scale_by_learning_rate as scale_by_learning_rate,
    scale_by_lion as scale_by_lion,
    scale_by_rms as scale_by_rms,
    scale_by_root_of_squares as scale_by_root_of_squares,
    scale_by_schedule as scale_by_schedule,
    trace as trace,
)
from shardir.frontend.optim.optimizers import (
    adagrad as adagrad,
    adam as adam,
    adamw as adamw,
    lion as lion,
    momentum as momentum,
    rmsprop as rmsprop,
    sgd as sgd,
)
from shardir.frontend.optim.schedules import (
    constant_schedule as constant_schedule,
    cosine_decay_schedule as cosine_decay_schedule,
    exponential_decay as exponential_decay,
    join_schedules as join_schedules,
    linear_schedule as linear_schedule,
    piecewise_constant_schedule as piecewise_constant_schedule,
    polynomial_schedule as polynomial_schedule,
    warmup_cosine_decay_schedule as warmup_cosine_decay_schedule,
)
from shardir.frontend.optim.transformations import (
    EmptyState as EmptyState,
    Transformation as Transformation,
    apply_updates as apply_updates,
    chain as chain,
    identity as identity,
    stateless as stateless,
)
