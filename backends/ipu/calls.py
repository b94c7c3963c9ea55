"""Every call that an emitted program may make, and where its form is documented.

Nothing here has been guessed: a call is on the list because a public header, a page of the
documentation or a published program has its signature. The host model implements these calls and
no others, and a test reads every emitted program for calls that are not on the list.

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
"""Functions and constructors, by their qualified names."""

PROGRAMS = {
    "Sequence": "D Program, P",
    "Copy": "D Program, P",
    "CrossReplicaCopy": "D Program",
    "If": "D Program, L popnn/Rnn.cpp",
    "Switch": "D Program, L popsparse/Embedding.cpp",
    "RepeatWhileTrue": "D Program, L popops/Loop.cpp",
}
"""Constructors of `poplar::program`, which an emitted program names without their namespace."""

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
"""Methods, with the class they belong to."""

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
"""Constructors of `popops::expr`, which an emitted program calls `pe`.

`UnaryOp(pe::UnaryOpType::POPCOUNT, x)` and `COUNT_LEADING_ZEROS` have no name of their own there.
Placeholders are `_1` to `_20`; the operators of C++ stand for the expressions of their names.
"""
