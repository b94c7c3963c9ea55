"""Definitions of passes, operations, rules, targets and backends in other packages.

`docs/extending.md` shows how to write each of them.
"""

from typing import TYPE_CHECKING

from shardir._imports.lazy_names import lazy_names

TABLE = {
    "shardir.backends.base": ("Backend", "Executable", "register_backend"),
    "shardir.backends.cpu.kernels.math.basic_rules": ("cpu_rule",),
    "shardir.backends.emission": (
        "Emission",
        "EmissionError",
        "ProgramValue",
        "Target",
        "register_target",
    ),
    "shardir.backends.gpu.kernels.arithmetic": ("triton_rule",),
    "shardir.backends.gpu.lowering": ("gpu_rule",),
    "shardir.backends.ipu.lowering.fused_groups": ("ipu_rule",),
    "shardir.frontend.lax.elementwise": ("elementwise_function", "operation_function"),
    "shardir.ir.arithmetic": ("Arithmetic",),
    "shardir.ir.attributes": ("Attributes",),
    "shardir.ir.builder": ("Builder",),
    "shardir.ir.operation": ("define_op",),
    "shardir.op_rules.rule_table": ("RuleTable",),
    "shardir.ops.elementwise.elementwise": ("define_binary", "define_unary"),
    "shardir.ops.type_checks": (
        "ANY_DTYPE",
        "FLOAT",
        "INEXACT",
        "INTEGER",
        "NUMERIC",
        "REAL",
    ),
    "shardir.passes": ("Pass", "Pipeline"),
    "shardir.plugins.entry_points": ("PluginError",),
    "shardir.plugins.registry": ("load_plugin",),
}
"""The public names that each module defines."""

if TYPE_CHECKING:
    from shardir.backends.base import (
        Backend as Backend,
        Executable as Executable,
        register_backend as register_backend,
    )
    from shardir.backends.cpu.kernels.math.basic_rules import cpu_rule as cpu_rule
    from shardir.backends.emission import (
        Emission as Emission,
        EmissionError as EmissionError,
        ProgramValue as ProgramValue,
        Target as Target,
        register_target as register_target,
    )
    from shardir.backends.gpu.kernels.arithmetic import triton_rule as triton_rule
    from shardir.backends.gpu.lowering import gpu_rule as gpu_rule
    from shardir.backends.ipu.lowering.fused_groups import ipu_rule as ipu_rule
    from shardir.frontend.lax.elementwise import (
        elementwise_function as elementwise_function,
        operation_function as operation_function,
    )
    from shardir.ir.arithmetic import Arithmetic as Arithmetic
    from shardir.ir.attributes import Attributes as Attributes
    from shardir.ir.builder import Builder as Builder
    from shardir.ir.operation import define_op as define_op
    from shardir.op_rules.rule_table import RuleTable as RuleTable
    from shardir.ops.elementwise.elementwise import (
        define_binary as define_binary,
        define_unary as define_unary,
    )
    from shardir.ops.type_checks import (
        ANY_DTYPE as ANY_DTYPE,
        FLOAT as FLOAT,
        INEXACT as INEXACT,
        INTEGER as INTEGER,
        NUMERIC as NUMERIC,
        REAL as REAL,
    )
    from shardir.passes import Pass as Pass, Pipeline as Pipeline
    from shardir.plugins.entry_points import PluginError as PluginError
    from shardir.plugins.registry import load_plugin as load_plugin
else:
    __getattr__, __dir__ = lazy_names(__name__, TABLE)
