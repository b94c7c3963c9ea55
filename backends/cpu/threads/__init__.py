"""Worker threads, the interpreter of phases, and memory.

Input: tables of phases. Output: tasks run on all cores; memory blocks that are reused.
`phase_interpreter` (LLVM text) shares the tasks of a phase by compare-and-swap on one word;
`shared_memory_layout` defines the words; `memory_pool` allocates. `address_space` and `cgroups`
read the limits of the process; `task_recording` and `roofline` serve profiles.
Start with `workers`, then `phase_interpreter` (its proof is in docs/cpu_runtime.md) and
`memory_pool`.
"""
