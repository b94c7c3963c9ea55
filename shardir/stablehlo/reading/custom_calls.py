"""Reading of custom calls whose meaning is known; all others stay opaque."""

from shardir.ir.module import Value
from shardir.stablehlo.reading import records
from shardir.stablehlo.reading.call import (
    READERS,
    OperationReader,
    UnsupportedOperation,
    register_reader,
)
from shardir.stablehlo.reading.decompositions import read_own_call
from shardir.stablehlo.reading.expansions.lapack import read_lapack
from shardir.stablehlo.reading.expansions.selections import read_approximate_top_k

Values = tuple[Value, ...]


@register_reader("custom_call")
def _custom_call(call: OperationReader) -> Values:
    target = call.types.string(call.symbol or call.attr("call_target_name"))
    if target == "mhlo.topk":
        config = call.attrs.get("mhlo.attributes")
        entries = config.entries if isinstance(config, records.DictRecord) else ()
        if any(entry.key == "largest" and str(entry.value) == "true" for entry in entries):
            return READERS["chlo.top_k"](call)
    if target == "ApproxTopK":
        return read_approximate_top_k(call)
    result = read_own_call(call, target)
    if result is None:
        result = read_lapack(call, target)
    if result is None:
        raise UnsupportedOperation("")
    return result
