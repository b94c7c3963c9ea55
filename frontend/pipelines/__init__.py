"""Pipeline parallelism in user programs.

`stage` marks the stages of a loss function, and `pipeline` traces it as a `pipeline` operation.
`compile` turns that operation into compiled fragments of each stage when a program is compiled, and
`runtime` runs the rows of its schedule. Start reading in `pipeline.py`; the passes are in
`shardir.passes.pipeline_parallelism`.
"""
