"""The algorithms of products in JAX's equations."""

from shardir.frontend.numpy.tracer_helpers.dot_algorithms import DotAlgorithm, DotAlgorithmPreset


def algorithm_of_product(precision: object) -> DotAlgorithm | DotAlgorithmPreset:
    """Return shardir's form of the algorithm in a parameter `precision` of JAX.

    Precisions have no effect, so `DEFAULT` stands for each of them, and for none: the setting
    `default_matmul_precision` of JAX has determined the parameter.
    """
    if isinstance(precision, tuple) and hasattr(precision, "accumulation_type"):
        return DotAlgorithm(*precision)
    name = getattr(precision, "name", "")
    return DotAlgorithmPreset.__members__.get(name, DotAlgorithmPreset.DEFAULT)
