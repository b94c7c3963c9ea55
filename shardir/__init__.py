"""shardir: a graph IR in which tensors carry shardings over a mesh of devices.

Names are imported on first use, so that `import shardir` is fast.
"""

from typing import TYPE_CHECKING

from shardir._interpreter import refuse_subinterpreters
from shardir._lazy import lazy_names

refuse_subinterpreters()

TABLE = {
    # user programs
    "shardir.frontend.array": ("Array", "ShapeDtypeStruct"),
    "shardir.frontend.assembling": (
        "make_array_from_callback",
        "make_array_from_process_local_data",
        "make_array_from_single_device_arrays",
    ),
    "shardir.frontend.callbacks": ("io_callback", "pure_callback"),
    "shardir.frontend.checkpointing": ("checkpoint", "checkpoint_policies", "remat"),
    "shardir.frontend.config": ("config", "cpu_devices", "enable_x64", "set_cpu_devices"),
    "shardir.frontend.custom_jvp": ("custom_jvp",),
    "shardir.frontend.custom_vjp": ("custom_gradient", "custom_vjp"),
    "shardir.frontend.custom_vmap": ("custom_vmap", "sequential_vmap"),
    "shardir.frontend.devices": (
        "Device",
        "default_backend",
        "device_count",
        "devices",
        "local_device_count",
        "local_devices",
    ),
    "shardir.frontend.directions": ("jvp", "linearize", "vjp"),
    "shardir.frontend.inspection": (
        "ensure_compile_time_eval",
        "eval_shape",
        "make_ir",
        "named_call",
        "named_scope",
    ),
    "shardir.frontend.jacobians": ("hessian", "jacfwd", "jacrev"),
    "shardir.frontend.jit": ("Compiled", "Lowered", "jit"),
    "shardir.frontend.linearity": ("closure_convert", "linear_transpose"),
    "shardir.frontend.mapping_shards": ("smap",),
    "shardir.frontend.mesh": ("Mesh", "create_device_mesh", "make_mesh"),
    "shardir.frontend.parallel_mapping": ("pmap",),
    "shardir.frontend.partition_spec": ("P", "PartitionSpec"),
    "shardir.frontend.placing": (
        "block_until_ready",
        "copy_to_host_async",
        "device_get",
        "device_put",
        "effects_barrier",
    ),
    "shardir.frontend.placing_shards": ("device_put_replicated", "device_put_sharded"),
    "shardir.frontend.positional_sharding": ("PositionalSharding",),
    "shardir.frontend.processes": ("process_count", "process_index"),
    "shardir.frontend.profiling": ("Profile", "profile"),
    "shardir.frontend.segments": (
        "segment_max",
        "segment_min",
        "segment_prod",
        "segment_sum",
    ),
    "shardir.frontend.setting_meshes": ("set_mesh",),
    "shardir.frontend.running": ("default_device", "disable_jit"),
    "shardir.frontend.shard_mapping": ("shard_map",),
    "shardir.frontend.shardings": ("NamedSharding", "SingleDeviceSharding"),
    "shardir.frontend.transforms": ("grad", "value_and_grad"),
    "shardir.frontend.vectorizing": ("vmap",),
    "shardir.ad_checkpoint": (),
    "shardir.checkpoints": (),
    "shardir.debug": (),
    "shardir.distributed": (),
    "shardir.dtypes": (),
    "shardir.experimental": (),
    "shardir.flatten_util": (),
    "shardir.interop": (),
    "shardir.lax": (),
    "shardir.nn": (),
    "shardir.numpy": (),
    "shardir.optim": (),
    "shardir.random": (),
    "shardir.scipy": (),
    "shardir.sharding": (),
    "shardir.testing": (),
    "shardir.tree": (),
    "shardir.tree_util": (),
    # IR
    "shardir.custom_rules": ("register_rule", "rules"),
    "shardir.errors": ("ShardirError",),
    "shardir.ir": ("Block", "Function", "Loc", "Module", "Op", "Value"),
    "shardir.reporting": ("Progress", "progress"),
    "shardir.rule_notation": ("ShardingRule", "sharding_rule"),
    "shardir.text.parser": ("parse",),
    "shardir.types": ("TensorType",),
}
"""The public names that each module defines."""

if TYPE_CHECKING:
    from shardir import (
        ad_checkpoint as ad_checkpoint,
        checkpoints as checkpoints,
        debug as debug,
        distributed as distributed,
        dtypes as dtypes,
        experimental as experimental,
        flatten_util as flatten_util,
        interop as interop,
        lax as lax,
        nn as nn,
        numpy as numpy,
        optim as optim,
        random as random,
        scipy as scipy,
        sharding as sharding,
        testing as testing,
        tree as tree,
        tree_util as tree_util,
    )
    from shardir.custom_rules import register_rule as register_rule, rules as rules
    from shardir.errors import ShardirError as ShardirError
    from shardir.frontend.array import Array as Array, ShapeDtypeStruct as ShapeDtypeStruct
    from shardir.frontend.assembling import (
        make_array_from_callback as make_array_from_callback,
        make_array_from_process_local_data as make_array_from_process_local_data,
        make_array_from_single_device_arrays as make_array_from_single_device_arrays,
    )
    from shardir.frontend.callbacks import (
        io_callback as io_callback,
        pure_callback as pure_callback,
    )
    from shardir.frontend.checkpointing import (
        checkpoint as checkpoint,
        checkpoint_policies as checkpoint_policies,
        remat as remat,
    )
    from shardir.frontend.config import (
        config as config,
        cpu_devices as cpu_devices,
        enable_x64 as enable_x64,
        set_cpu_devices as set_cpu_devices,
    )
    from shardir.frontend.custom_jvp import custom_jvp as custom_jvp
    from shardir.frontend.custom_vjp import (
        custom_gradient as custom_gradient,
        custom_vjp as custom_vjp,
    )
    from shardir.frontend.custom_vmap import (
        custom_vmap as custom_vmap,
        sequential_vmap as sequential_vmap,
    )
    from shardir.frontend.devices import (
        Device as Device,
        default_backend as default_backend,
        device_count as device_count,
        devices as devices,
        local_device_count as local_device_count,
        local_devices as local_devices,
    )
    from shardir.frontend.directions import jvp as jvp, linearize as linearize, vjp as vjp
    from shardir.frontend.inspection import (
        ensure_compile_time_eval as ensure_compile_time_eval,
        eval_shape as eval_shape,
        make_ir as make_ir,
        named_call as named_call,
        named_scope as named_scope,
    )
    from shardir.frontend.jacobians import (
        hessian as hessian,
        jacfwd as jacfwd,
        jacrev as jacrev,
    )
    from shardir.frontend.jit import Compiled as Compiled, Lowered as Lowered, jit as jit
    from shardir.frontend.linearity import (
        closure_convert as closure_convert,
        linear_transpose as linear_transpose,
    )
    from shardir.frontend.mapping_shards import smap as smap
    from shardir.frontend.mesh import (
        Mesh as Mesh,
        create_device_mesh as create_device_mesh,
        make_mesh as make_mesh,
    )
    from shardir.frontend.parallel_mapping import pmap as pmap
    from shardir.frontend.partition_spec import P as P, PartitionSpec as PartitionSpec
    from shardir.frontend.placing import (
        block_until_ready as block_until_ready,
        copy_to_host_async as copy_to_host_async,
        device_get as device_get,
        device_put as device_put,
        effects_barrier as effects_barrier,
    )
    from shardir.frontend.placing_shards import (
        device_put_replicated as device_put_replicated,
        device_put_sharded as device_put_sharded,
    )
    from shardir.frontend.positional_sharding import PositionalSharding as PositionalSharding
    from shardir.frontend.processes import (
        process_count as process_count,
        process_index as process_index,
    )
    from shardir.frontend.profiling import Profile as Profile, profile as profile
    from shardir.frontend.running import (
        default_device as default_device,
        disable_jit as disable_jit,
    )
    from shardir.frontend.segments import (
        segment_max as segment_max,
        segment_min as segment_min,
        segment_prod as segment_prod,
        segment_sum as segment_sum,
    )
    from shardir.frontend.setting_meshes import set_mesh as set_mesh
    from shardir.frontend.shard_mapping import shard_map as shard_map
    from shardir.frontend.shardings import (
        NamedSharding as NamedSharding,
        SingleDeviceSharding as SingleDeviceSharding,
    )
    from shardir.frontend.transforms import grad as grad, value_and_grad as value_and_grad
    from shardir.frontend.vectorizing import vmap as vmap
    from shardir.ir import (
        Block as Block,
        Function as Function,
        Loc as Loc,
        Module as Module,
        Op as Op,
        Value as Value,
    )
    from shardir.reporting import Progress as Progress, progress as progress
    from shardir.rule_notation import (
        ShardingRule as ShardingRule,
        sharding_rule as sharding_rule,
    )
    from shardir.text.parser import parse as parse
    from shardir.types import TensorType as TensorType
else:
    __getattr__, __dir__ = lazy_names(__name__, TABLE)
