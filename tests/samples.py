"""Samples of every operation: operands, attributes and results to test its rules with."""

from tests.op_samples import arrangement, computation, pointwise

SAMPLES = [*pointwise.SAMPLES, *arrangement.SAMPLES, *computation.SAMPLES]
