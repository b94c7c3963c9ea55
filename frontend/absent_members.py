"""The public members of JAX's classes that classes of shardir lack, each with the reason and an
alternative.

Errors for unknown members state them. `tests/interop/test_absent_members.py` compares the table
with an installed JAX: every missing member is here, and every member here is missing.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Never

from shardir.frontend.errors import UnknownMethod
from shardir.frontend.source_locations import with_location

_LAYOUTS = "the backends choose the layouts of buffers; leave it out"
_MEMORIES = (
    "arrays are in the memory of their devices; leave it out, or convert an array with "
    "numpy.asarray to keep it in the memory of the host"
)
_INTERNAL = "it serves JAX's own implementation; leave it out"
_DIMENSIONS = (
    "a type has no elements and no methods of arrays; call shardir.eval_shape for the type of a "
    "result"
)

ABSENT_MEMBERS: Mapping[str, Mapping[str, str]] = {
    "Array": {
        _LAYOUTS: "format",
        _INTERNAL: "pprint traceback",
        "call copy, which returns an array with memory of its own": "clone",
        "nbytes is the size of all elements; addressable_shards have the data of each device": (
            "on_device_size_in_bytes"
        ),
        "its devices have it: x.sharding.device_set": "platform",
        "addressable_shards have the data of each device": "device_buffer",
        "share the memory of the array by the protocol of numpy.from_dlpack": (
            "unsafe_buffer_pointer"
        ),
    },
    "Tracer": {
        _INTERNAL: """
            aval_mutable_qdd cur_qdd dimension_as_value full_lower get_const get_referent
            mutable_qdd parent to_concrete_value traceback val
        """,
        "a traced value has no memory; use the array that the compiled function returns": """
            addressable_data addressable_shards committed delete device devices global_shards
            is_deleted is_fully_addressable is_fully_replicated on_device_size_in_bytes
            unsafe_buffer_pointer
        """,
    },
    "AbstractMesh": {
        "an AbstractMesh has names and sizes of axes, but no kind of device; leave it out": (
            "abstract_device"
        ),
    },
    "PartitionSpec": {
        _INTERNAL: "to_lo",
        "exchange unreduced and reduced axes with update": "to_ct_spec to_tangent_spec",
    },
    "Traced": {_INTERNAL: "lojax"},
    "Lowered": {
        "call as_text, whose dialect is 'stablehlo' or another format": "compiler_ir",
    },
    "Compiled": {
        "the backends choose the layouts of buffers; input_shardings and output_shardings state "
        "the shardings": """
            input_formats output_formats
        """,
        "call the object itself": "call",
    },
    "Exported": {
        "call in_shardings_jax or out_shardings_jax with a mesh": (
            "in_shardings_hlo out_shardings_hlo"
        ),
        "a program of shardir has its own format, and all of its arguments": """
            calling_convention_version module_kept_var_idx uses_global_constants
        """,
        "the effects of a program run in the order of the program": (
            "ordered_effects unordered_effects"
        ),
    },
    "Device": {
        _MEMORIES: "addressable_memories default_memory memory",
        _INTERNAL: "client get_stream_for_external_ready_events poison_execution",
        "JAX documents it as an older name; read process_index": "host_id task_id",
        "call shardir.live_arrays": "live_buffers",
    },
    "ShapeDtypeStruct": {
        _LAYOUTS: "format",
        "arrays do not change in place; leave it out": "is_ref",
        "call shardir.typeof inside of the function that shard_map maps": "manual_axis_type",
    },
    "ShapedArray": {
        _INTERNAL: """
            array_abstraction_level at_least_vspace dec_rank has_qdd inc_rank is_high
            leading_axis_spec lo_ty lo_ty_qdd lower_val lower_val2 normalize nospec raise_val
            raise_val2 shard unshard vspace_add to_ct_aval
        """,
        _MEMORIES: "memory_space",
        "make another type with shardir.ShapedArray": """
            update update_manual_axis_type update_weak_type strip_weak_type
        """,
        "call str": "str_short",
        _DIMENSIONS: """
            T all any argmax argmin argpartition argsort astype at broadcast byteswap choose clip
            compress conj conjugate copy cumprod cumsum diagonal dot flat flatten imag item mT max
            mean min nonzero prod ptp ravel real repeat reshape round searchsorted sort squeeze std
            sum swapaxes take to_device trace transpose var view
        """,
    },
    "PyTreeDef": {
        "pickle the object": "deserialize_using_proto serialize_using_proto",
        "call shardir.tree_util.treedef_tuple, or shardir.tree.structure of a tree": (
            "from_iterable_tree from_node_data_and_children"
        ),
    },
    "MemoryAnalysis": {
        _INTERNAL: "serialized_buffer_assignment_proto",
        "host_temp_size_in_bytes and host_peak_memory_in_bytes count the memory of the process": """
            host_alias_size_in_bytes host_argument_size_in_bytes host_generated_code_size_in_bytes
            host_output_size_in_bytes
        """,
    },
    "Pullback": {
        _INTERNAL: "jaxpr with_refs",
        "trace the function with shardir.make_ir": "fun in_tree out_tree",
    },
}
"""The reasons that errors state, each with the members of a class that it explains."""


def absence_of_member(kind: type, name: str) -> str | None:
    """Return what an error states about a member that `kind`, or a class that it extends, lacks."""
    for base in kind.__mro__:
        for reason, names in ABSENT_MEMBERS.get(base.__name__, {}).items():
            if name in names.split():
                return reason
    return None


class WithAbsentMembers:
    """Base class whose errors for members of JAX's class state the reason."""

    __slots__ = ()

    if not TYPE_CHECKING:  # Type checkers would accept any attribute.

        def __getattr__(self, name: str) -> Any:
            """Raise `AttributeError`.

            Python also calls this for a property that raised `AttributeError`; it is evaluated
            again to raise the original error.
            """
            known = getattr(type(self), name, None)
            if isinstance(known, property):
                return known.fget(self)
            if isinstance(known, cached_property):
                return known.func(self)
            raise_unknown_member(self, name)


def raise_unknown_member(instance: object, name: str) -> Never:
    """Raise `UnknownMethod` with the reason for an absent member, or Python's `AttributeError`."""
    text = f"{type(instance).__name__!r} object has no attribute {name!r}"
    reason = absence_of_member(type(instance), name)
    if reason is None:
        raise AttributeError(text, name=name, obj=instance)
    raise UnknownMethod(with_location(f"{text}; {reason}"))
