"""What a library of a protocol raises where the bytes of a peer have led it astray."""

import struct

from appliance.base.printable import one_line

# By kinds, not all there is: a want of memory or of the machine is no peer's fault. To be caught
# around a call into the library alone: in code of ours they are a fault of ours.
LIBRARY_FAULTS: tuple[type[Exception], ...] = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    BufferError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
    struct.error,
)
_SHOWN_MAX = 200  # characters of an error: it may hold what the peer sent


def described(error: Exception) -> str:
    """What was raised and where, in one line for a log."""
    step = error.__traceback__
    while step is not None and step.tb_next is not None:
        step = step.tb_next
    where = "" if step is None else f" at {step.tb_frame.f_code.co_name}:{step.tb_lineno}"
    return one_line(repr(error)[:_SHOWN_MAX] + where)
