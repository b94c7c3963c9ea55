"""Reading of StableHLO operations that become long computations of the IR.

Input: an operation whose parts `OperationReader` has sorted. Output: values, and the operations
that compute them: decompositions of LAPACK, random bits, special functions, scatters by any
computation, and selections. Start with `arithmetic`, through which the others emit operations.
"""
