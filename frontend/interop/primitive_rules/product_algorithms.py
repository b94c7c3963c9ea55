"""The algorithms of products in JAX's equations."""

from shardir.frontend.numpy.tracer_helpers.dot_algorithms import DotAlgorithm, DotAlgorithmPreset


def algorithm_of_product(precision: object) -> DotAlgorithm | DotAlgorithmPreset | None:
    """Return shardir's form of the algorithm in a parameter `precision` of JAX.

    Precisions have no effect, so `None` stands for each of them.
    """
    if isinstance(precision, tuple) and hasattr(precision, "accumulation_type"):
        return DotAlgorithm(*precision)
    name = getattr(precision, "name", "")
    return DotAlgorithmPreset.__members__.get(name)
