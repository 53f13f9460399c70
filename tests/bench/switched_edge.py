"""An edge of a site whose check of records can be switched off and on while it runs, to measure it.

    python tests/bench/switched_edge.py start edge --node-folder F

SIGUSR1 switches the check off, SIGUSR2 on; the file `check` in the node's folder says which holds.
"""

import signal
import sys
from pathlib import Path
from types import FrameType

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP))

from appliance.__main__ import main  # noqa: E402
from appliance.formats.verified_segment import VerifiedSegment  # noqa: E402
from tests.bench.bench_history import unchecked  # noqa: E402

OFF, ON = signal.SIGUSR1, signal.SIGUSR2
ANSWER = "check"  # the file that says "off" or "on"
_CHECKED = VerifiedSegment.at


def switch(number: int, frame: FrameType | None) -> None:
    """What a record goes through before it leaves, from now on."""
    setattr(VerifiedSegment, "at", _CHECKED if number == ON else unchecked)  # noqa: B010
    folder = Path(sys.argv[sys.argv.index("--node-folder") + 1])
    (folder / ANSWER).write_text("on" if number == ON else "off")


if __name__ == "__main__":
    signal.signal(OFF, switch)
    signal.signal(ON, switch)
    sys.exit(main())
