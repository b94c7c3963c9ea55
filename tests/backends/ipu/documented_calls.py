"""All calls that an emitted program may contain, with the source of their signatures.

Each call has a source: a public header, a page of the documentation or a published program. The
host model implements these calls and no others, and a test checks that emitted programs contain
only calls of this list.

`D` is Graphcore's reference (docs.graphcore.ai: poplar-api, gcl-user-guide), `P` a header of
graphcore/poplibs, `L` a use in the library code of graphcore/poplibs, `T` the tutorials of
graphcore/examples, `X` the Poplar driver of graphcore-research/tensorflow-jax-experimental, `A`
graphcore/popart.
"""

FUNCTIONS = {
    "gcl::CommGroup": "D gcl-user-guide",
    "gcl::allReduceCrossReplica": "D, A op/collectives",
    "gcl::allGatherCrossReplica": "A op/collectives, X",
    "gcl::reduceScatterCrossReplica": "A op/collectives, X",
    "gcl::allToAllCrossReplica": "A op/collectives, X",
    "poplar::concat": "P, T",
    "poplar::replication_factor": "D Graph",
    "poplin::addCodelets": "P poplin/codelets.hpp",
    "poplin::createMatMulInputLHS": "P poplin/MatMul.hpp",
    "poplin::createMatMulInputRHS": "P poplin/MatMul.hpp",
    "poplin::matMul": "P poplin/MatMul.hpp",
    "poplin::matMulGrouped": "P poplin/MatMul.hpp",
    "popops::TopKParams": "P popops/TopK.hpp",
    "popops::addCodelets": "P popops/codelets.hpp",
    "popops::cast": "P popops/Cast.hpp",
    "popops::countedLoop": "P popops/Loop.hpp",
    "popops::dynamicSlice": "P popops/DynamicSlice.hpp",
    "popops::dynamicUpdate": "P popops/DynamicSlice.hpp",
    "popops::gather": "P popops/Gather.hpp",
    "popops::map": "P popops/ElementWise.hpp",
    "popops::reduce": "P popops/Reduce.hpp",
    "popops::topKWithPermutation": "P popops/TopK.hpp",
    "popops::scatter": "P popops/Scatter.hpp",
    "popops::UpdateComputationFunc": "P popops/Scatter.hpp",
    "popops::zero": "P popops/Zero.hpp",
    "poputil::mapTensorLinearly": "P poputil/TileMapping.hpp",
}
"""Functions and constructors, keyed by qualified name."""

PROGRAMS = {
    "Sequence": "D Program, P",
    "Copy": "D Program, P",
    "CrossReplicaCopy": "D Program",
    "If": "D Program, L popnn/Rnn.cpp",
    "Switch": "D Program, L popsparse/Embedding.cpp",
    "RepeatWhileTrue": "D Program, L popops/Loop.cpp",
}
"""Constructors of `poplar::program`, which emitted programs use without the namespace."""

METHODS = {
    "add": "Sequence; D, T",
    "addConstant": "Graph; D, X, L popops/Gather.cpp",
    "addConstantHalf": "Graph; D, X",
    "addDeviceToHostFIFO": "Graph; D, X",
    "addHostToDeviceFIFO": "Graph; D, X",
    "addReplicationIndexConstant": "Graph; D, X",
    "addVariable": "Graph; D, T",
    "broadcast": "Tensor; D, L poplin/ConvTransforms.cpp",
    "clone": "Graph; D, T",
    "dimShuffle": "Tensor; D, L popops/Scatter.cpp",
    "elementType": "Tensor; D, L",
    "dim": "Tensor; D, L popops/Sort.cpp",
    "flatten": "Tensor; D, L",
    "reinterpret": "Tensor; D, L popops/Cast.cpp",
    "reshape": "Tensor; D, L",
    "reverse": "Tensor; D, L",
    "setTileMapping": "Graph; D, T",
    "slice": "Tensor; D, T",
    "subSample": "Tensor; D, L poplin/ConvTransforms.cpp",
    "first": "std::pair",
    "second": "std::pair",
}
"""Methods, with their class."""

EXPRESSIONS = {
    name: "P popops/Expr.hpp"
    for name in (
        "Abs", "Add", "And", "Any", "Asin", "Atan2", "BitwiseAnd", "BitwiseNot", "BitwiseOr",
        "BitwiseXor", "Cast", "Cbrt", "Ceil", "Clamp", "Const", "ConstHalf", "Cos", "Divide",
        "Equal", "Erf", "Exp", "Exp2", "Expm1", "Floor", "Gt", "Gte", "Inv", "IsFinite", "IsInf",
        "IsNaN", "Log", "Log1p", "Lt", "Lte", "Max", "Min", "Mul", "NearbyInt", "Neg", "Not",
        "NotEqual", "Or", "Pow", "Rem", "Round", "Rsqrt", "Select", "Shl", "Shr", "ShrSE",
        "Sigmoid", "Signum", "Sin", "Sqrt", "Square", "Sub", "Tan", "Tanh", "Trunc", "UnaryOp",
    )
}  # fmt: skip
"""Constructors of `popops::expr`, for which emitted programs use the alias `pe`.

`UnaryOp(pe::UnaryOpType::POPCOUNT, x)` and `COUNT_LEADING_ZEROS` have no constructors there.
Placeholders are `_1` to `_20`; C++ operators are overloaded for the expressions.
"""
