"""Pipeline parallelism: the stages of a program, and the order in which each rank computes them.

Programs: `split_stages` (`stage_assignment`), `split_backward` and `schedule_pipelines` turn a
`pipeline` operation into fragments (`program`) and a schedule; `inline_pipelines` defines its
meaning. Schedules: `named_schedules`, or files in torch's notation (`schedule`), are verified
(`progress`), extended by `transfers`, simulated (`simulation`) and searched (`search`). Start
reading in `actions.py` and `program.py`.
"""
