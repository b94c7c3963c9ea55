"""Pipeline parallelism: the order in which each rank computes the stages of microbatches.

Input: the name of a schedule with the numbers of stages and microbatches (`named_schedules`), or a
file in torch's notation (`schedule`). Output: a `PipelineSchedule`, which can be verified
(`progress`), extended by transfers (`transfers`), simulated with the time and the memory of each
action (`simulation`), and searched under a memory limit (`search`). Start reading in `actions.py`.
"""
