"""Pipelines: a call of the runtime files, which run a schedule.

`pipeline_text.py` writes the functions of the passes and the declaration of the pipeline.
"""

from shardir.backends.emission import EmissionError
from shardir.backends.gpu.function_writer import FunctionWriter
from shardir.backends.gpu.lowering import HOST_CALLBACK_REASON, lowers
from shardir.backends.pipeline_programs import emitted_pipeline
from shardir.ir.module import Op


@lowers("pipeline-call")
def _pipeline_call(w: FunctionWriter, op: Op, *operands: str) -> str:
    program = emitted_pipeline(op)
    if program is None:
        raise EmissionError.of(op, HOST_CALLBACK_REASON, "emit the traced program instead")
    w.needs.pipelines.append(program)
    number = len(w.needs.pipelines) - 1
    call = f"run_pipeline({', '.join(['comm', f'PIPELINES[{number}]', *operands])})"
    return f"{call}[0]" if len(op.results) == 1 else call
