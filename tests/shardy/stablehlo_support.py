"""Operations and attributes that StableHLO cannot express."""

from tests.op_sample import Sample


def is_expressible(sample: Sample) -> bool:
    dilated = any(
        step != 1
        for name in ("base_dilation", "window_dilation")
        for step in sample.attrs.get(name, ())
    )
    spec = sample.spec
    return not (spec.spmd or spec.collective or (spec.name == "select_and_scatter" and dilated))
