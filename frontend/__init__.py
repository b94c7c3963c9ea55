"""The frontend: devices, arrays, and the tracing of Python functions to modules.

Input: functions and arguments of the user. Output: modules for the passes, and arrays as results.
Imports point one way, from later to earlier modules of this list: `source_locations`,
`argument_checks`, `pytree.tree`, `argument_errors`, `shardings.sharding`, `arrays.array`,
`tracing.trace`, `tracing.operands`, `dispatch.programs`, `dispatch.eager`, `dispatch.jit`; then the
namespaces and transforms. Start with `tracing` and `dispatch`.
"""
