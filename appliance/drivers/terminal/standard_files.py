"""Standard input, output and error, where whoever started us had closed one."""

import os
import sys


def opened() -> None:
    """Open as /dev/null what is closed: else the next file that is opened, a volume perhaps, gets
    that number, and with it what is printed; and what reads finds no stream there.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free, which is this one
    if sys.stdin is None:
        sys.stdin = os.fdopen(0, "r", closefd=False)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)
