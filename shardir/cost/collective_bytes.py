"""Bytes that devices send in collectives with bandwidth-optimal algorithms."""


def bytes_sent(kind: str, operand_nbytes: int, devices: int) -> int:
    """Return the bytes that each device sends in a collective with bandwidth-optimal algorithms.

    `operand_nbytes` are the bytes of the operand on one device, `devices` is the size of a group.
    In a group of n devices, all-gather, reduce-scatter and all-to-all each send (n - 1) / n of the
    full tensor; an all-reduce sends twice that, and a collective-permute its operand.
    """
    match kind:
        case "all-reduce":
            return _ceil_div(2 * operand_nbytes * (devices - 1), devices)
        case "all-gather":
            return operand_nbytes * (devices - 1)
        case "collective-permute":
            return operand_nbytes
        case _:
            return _ceil_div(operand_nbytes * (devices - 1), devices)


def _ceil_div(a: int, b: int) -> int:
    return -(-a // b)
