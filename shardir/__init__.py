"""shardir: a graph IR in which tensors carry shardings over a mesh of devices.

Names are imported on first use, so that `import shardir` is fast.
"""

from typing import TYPE_CHECKING

from shardir._imports.absent_finder import install_absent_name_finder
from shardir._imports.lazy_names import lazy_names
from shardir._imports.subinterpreters import refuse_subinterpreters

refuse_subinterpreters()
install_absent_name_finder()

__version__ = "0.1.0"
"""The version of the package; pyproject.toml reads it from here."""

TABLE = {
    # user programs
    "shardir.frontend.arrays.array": ("Array", "ShapeDtypeStruct", "Shard"),
    "shardir.frontend.distributed.array_assembly": (
        "make_array_from_callback",
        "make_array_from_process_local_data",
        "make_array_from_single_device_arrays",
    ),
    "shardir.frontend.dispatch.callbacks": ("io_callback", "pure_callback"),
    "shardir.frontend.transforms.rematerialization": ("checkpoint", "checkpoint_policies", "remat"),
    "shardir.frontend.config": (
        "check_tracer_leaks",
        "checking_leaks",
        "config",
        "cpu_devices",
        "debug_infs",
        "debug_nans",
        "default_matmul_precision",
        "default_prng_impl",
        "enable_custom_prng",
        "enable_x64",
        "legacy_prng_key",
        "log_compiles",
        "set_cpu_devices",
        "threefry_partitionable",
    ),
    "shardir.frontend.transforms.custom_jvp": ("custom_jvp",),
    "shardir.frontend.transforms.custom_vjp": ("custom_gradient", "custom_vjp"),
    "shardir.frontend.transforms.custom_vmap": ("custom_vmap", "sequential_vmap"),
    "shardir.frontend.shardings.devices": (
        "Device",
        "default_backend",
        "device_count",
        "devices",
        "local_device_count",
        "local_devices",
    ),
    "shardir.frontend.transforms.jvp_vjp": ("jvp", "linearize", "vjp"),
    "shardir.frontend.dispatch.inspection": (
        "ensure_compile_time_eval",
        "eval_shape",
        "named_call",
        "named_scope",
    ),
    "shardir.frontend.transforms.jacobians": ("hessian", "jacfwd", "jacobian", "jacrev"),
    "shardir.frontend.dispatch.jit": ("Compiled", "Lowered", "clear_caches", "jit", "make_ir"),
    "shardir.frontend.transforms.linear_transpose": ("closure_convert", "linear_transpose"),
    "shardir.frontend.transforms.manual.smap": ("smap",),
    "shardir.frontend.shardings.mesh": ("Mesh", "create_device_mesh", "make_mesh"),
    "shardir.frontend.transforms.manual.pmap": ("pmap",),
    "shardir.frontend.planning.auto": ("AUTO",),
    "shardir.frontend.planning.plan": ("Plan",),
    "shardir.frontend.planning.planning": ("plan",),
    "shardir.frontend.shardings.partition_spec": ("P", "PartitionSpec"),
    "shardir.frontend.arrays.device_transfer": (
        "block_until_ready",
        "copy_to_host_async",
        "device_get",
        "device_put",
        "effects_barrier",
    ),
    "shardir.frontend.arrays.live_arrays": ("live_arrays",),
    "shardir.frontend.shardings.resharding": ("reshard",),
    "shardir.frontend.tracing.typeof": ("ShapedArray", "typeof"),
    "shardir.frontend.arrays.stacked_transfer": ("device_put_replicated", "device_put_sharded"),
    "shardir.frontend.shardings.positional_sharding": ("PositionalSharding",),
    "shardir.frontend.distributed.processes": ("process_count", "process_index", "process_indices"),
    "shardir.frontend.profiling.profile": ("Profile", "profile"),
    "shardir.frontend.numpy.reductions.segments": (
        "segment_max",
        "segment_min",
        "segment_prod",
        "segment_sum",
    ),
    "shardir.frontend.shardings.set_mesh": ("set_mesh",),
    "shardir.frontend.dispatch.execution_context": ("default_device", "disable_jit"),
    "shardir.frontend.transforms.manual.shard_map": ("shard_map",),
    "shardir.frontend.pipelines.pipeline": ("pipeline",),
    "shardir.frontend.pipelines.stage": ("stage",),
    "shardir.frontend.shardings.sharding": ("NamedSharding", "SingleDeviceSharding"),
    "shardir.frontend.transforms.grad": ("grad", "value_and_grad"),
    "shardir.frontend.transforms.vmap": ("vmap",),
    "shardir.custom_batching": (),
    "shardir.custom_derivatives": (),
    "shardir.dlpack": (),
    "shardir.stages": (),
    "shardir.typing": (),
    "shardir.frontend.dtypes": ("float0",),
    "shardir.frontend.transforms.forward_and_backward": ("fwd_and_bwd",),
    "shardir.frontend.environment_info": ("print_environment_info",),
    "shardir.profiler": (),
    "shardir.export": (),
    "shardir.ad_checkpoint": (),
    "shardir.checkpoints": (),
    "shardir.debug": (),
    "shardir.distributed": (),
    "shardir.dtypes": (),
    "shardir.errors": (),
    "shardir.experimental": (),
    "shardir.extend": (),
    "shardir.flatten_util": (),
    "shardir.image": (),
    "shardir.interop": (),
    "shardir.lax": (),
    "shardir.machine": (),
    "shardir.nn": (),
    "shardir.numpy": (),
    "shardir.optim": (),
    "shardir.random": (),
    "shardir.report": (),
    "shardir.scipy": (),
    "shardir.sharding": (),
    "shardir.test_util": (),
    "shardir.testing": (),
    "shardir.tree": (),
    "shardir.tree_util": (),
    # IR
    "shardir.frontend.located_functions": (
        "parse",
        "progress",
        "register_rule",
        "rules",
        "sharding_rule",
    ),
    "shardir.frontend.errors": ("ShardirError",),
    "shardir.ir.module": ("Block", "Function", "Loc", "Module", "Op", "Value"),
    "shardir.display.compilation_progress": ("Progress",),
    "shardir.op_rules.rule_notation": ("ShardingRule",),
    "shardir.ir.types": ("TensorType",),
}
"""The public names that each module defines."""

if TYPE_CHECKING:
    from shardir import (
        ad_checkpoint as ad_checkpoint,
        checkpoints as checkpoints,
        custom_batching as custom_batching,
        custom_derivatives as custom_derivatives,
        debug as debug,
        distributed as distributed,
        dlpack as dlpack,
        dtypes as dtypes,
        errors as errors,
        experimental as experimental,
        export as export,
        extend as extend,
        flatten_util as flatten_util,
        image as image,
        interop as interop,
        lax as lax,
        machine as machine,
        nn as nn,
        numpy as numpy,
        optim as optim,
        profiler as profiler,
        random as random,
        report as report,
        scipy as scipy,
        sharding as sharding,
        stages as stages,
        test_util as test_util,
        testing as testing,
        tree as tree,
        tree_util as tree_util,
        typing as typing,
    )
    from shardir.display.compilation_progress import Progress as Progress
    from shardir.frontend.arrays.array import ShapeDtypeStruct as ShapeDtypeStruct, Shard as Shard
    from shardir.frontend.arrays.device_transfer import (
        block_until_ready as block_until_ready,
        copy_to_host_async as copy_to_host_async,
        device_get as device_get,
        device_put as device_put,
        effects_barrier as effects_barrier,
    )
    from shardir.frontend.arrays.live_arrays import live_arrays as live_arrays
    from shardir.frontend.arrays.operators import Operators
    from shardir.frontend.arrays.stacked_transfer import (
        device_put_replicated as device_put_replicated,
        device_put_sharded as device_put_sharded,
    )
    from shardir.frontend.config import (
        check_tracer_leaks as check_tracer_leaks,
        checking_leaks as checking_leaks,
        config as config,
        cpu_devices as cpu_devices,
        debug_infs as debug_infs,
        debug_nans as debug_nans,
        default_matmul_precision as default_matmul_precision,
        default_prng_impl as default_prng_impl,
        enable_custom_prng as enable_custom_prng,
        enable_x64 as enable_x64,
        legacy_prng_key as legacy_prng_key,
        log_compiles as log_compiles,
        set_cpu_devices as set_cpu_devices,
        threefry_partitionable as threefry_partitionable,
    )
    from shardir.frontend.dispatch.callbacks import (
        io_callback as io_callback,
        pure_callback as pure_callback,
    )
    from shardir.frontend.dispatch.execution_context import (
        default_device as default_device,
        disable_jit as disable_jit,
    )
    from shardir.frontend.dispatch.inspection import (
        ensure_compile_time_eval as ensure_compile_time_eval,
        eval_shape as eval_shape,
        named_call as named_call,
        named_scope as named_scope,
    )
    from shardir.frontend.dispatch.jit import (
        Compiled as Compiled,
        Lowered as Lowered,
        clear_caches as clear_caches,
        jit as jit,
        make_ir as make_ir,
    )
    from shardir.frontend.distributed.array_assembly import (
        make_array_from_callback as make_array_from_callback,
        make_array_from_process_local_data as make_array_from_process_local_data,
        make_array_from_single_device_arrays as make_array_from_single_device_arrays,
    )
    from shardir.frontend.distributed.processes import (
        process_count as process_count,
        process_index as process_index,
        process_indices as process_indices,
    )
    from shardir.frontend.dtypes import float0 as float0
    from shardir.frontend.environment_info import print_environment_info as print_environment_info
    from shardir.frontend.errors import ShardirError as ShardirError
    from shardir.frontend.located_functions import (
        parse as parse,
        progress as progress,
        register_rule as register_rule,
        rules as rules,
        sharding_rule as sharding_rule,
    )
    from shardir.frontend.numpy.reductions.segments import (
        segment_max as segment_max,
        segment_min as segment_min,
        segment_prod as segment_prod,
        segment_sum as segment_sum,
    )
    from shardir.frontend.pipelines.pipeline import pipeline as pipeline
    from shardir.frontend.pipelines.stage import stage as stage
    from shardir.frontend.planning.auto import AUTO as AUTO
    from shardir.frontend.planning.plan import Plan as Plan
    from shardir.frontend.planning.planning import plan as plan
    from shardir.frontend.profiling.profile import Profile as Profile, profile as profile
    from shardir.frontend.shardings.devices import (
        Device as Device,
        default_backend as default_backend,
        device_count as device_count,
        devices as devices,
        local_device_count as local_device_count,
        local_devices as local_devices,
    )
    from shardir.frontend.shardings.mesh import (
        Mesh as Mesh,
        create_device_mesh as create_device_mesh,
        make_mesh as make_mesh,
    )
    from shardir.frontend.shardings.partition_spec import P as P, PartitionSpec as PartitionSpec
    from shardir.frontend.shardings.positional_sharding import (
        PositionalSharding as PositionalSharding,
    )
    from shardir.frontend.shardings.resharding import reshard as reshard
    from shardir.frontend.shardings.set_mesh import set_mesh as set_mesh
    from shardir.frontend.shardings.sharding import (
        NamedSharding as NamedSharding,
        SingleDeviceSharding as SingleDeviceSharding,
    )
    from shardir.frontend.tracing.typeof import ShapedArray as ShapedArray, typeof as typeof
    from shardir.frontend.transforms.custom_jvp import custom_jvp as custom_jvp
    from shardir.frontend.transforms.custom_vjp import (
        custom_gradient as custom_gradient,
        custom_vjp as custom_vjp,
    )
    from shardir.frontend.transforms.custom_vmap import (
        custom_vmap as custom_vmap,
        sequential_vmap as sequential_vmap,
    )
    from shardir.frontend.transforms.forward_and_backward import fwd_and_bwd as fwd_and_bwd
    from shardir.frontend.transforms.grad import grad as grad, value_and_grad as value_and_grad
    from shardir.frontend.transforms.jacobians import (
        hessian as hessian,
        jacfwd as jacfwd,
        jacobian as jacobian,
        jacrev as jacrev,
    )
    from shardir.frontend.transforms.jvp_vjp import jvp as jvp, linearize as linearize, vjp as vjp
    from shardir.frontend.transforms.linear_transpose import (
        closure_convert as closure_convert,
        linear_transpose as linear_transpose,
    )
    from shardir.frontend.transforms.manual.pmap import pmap as pmap
    from shardir.frontend.transforms.manual.shard_map import shard_map as shard_map
    from shardir.frontend.transforms.manual.smap import smap as smap
    from shardir.frontend.transforms.rematerialization import (
        checkpoint as checkpoint,
        checkpoint_policies as checkpoint_policies,
        remat as remat,
    )
    from shardir.frontend.transforms.vmap import vmap as vmap
    from shardir.ir.module import (
        Block as Block,
        Function as Function,
        Loc as Loc,
        Module as Module,
        Op as Op,
        Value as Value,
    )
    from shardir.ir.types import TensorType as TensorType
    from shardir.op_rules.rule_notation import ShardingRule as ShardingRule

    # To type checkers `Array` is the class that arrays and tracers share, so that a function whose
    # parameters have this type can be called in both ways.
    Array = Operators
else:
    __getattr__, __dir__ = lazy_names(__name__, TABLE)
