"""The log of a process: to the journal with its fields, else to stderr, a line each.

TIGERCHAT_ROLE   the process, such as replica-0; the units add TIGERCHAT_UNIT
"""

import logging
import os
import sys

import systemd.journal

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def in_journal() -> bool:
    """Whether stderr is a stream of the journal."""
    device, _, inode = os.environ.get("JOURNAL_STREAM", "").partition(":")
    try:
        stat = os.fstat(sys.stderr.fileno())
    except (OSError, ValueError):
        return False
    return (device, inode) == (str(stat.st_dev), str(stat.st_ino))


def start_log(role: str, level: str) -> logging.Logger:
    """Send all lines of `level` and above to the journal or to stderr; the log of `role`."""
    handler: logging.Handler
    to_journal = in_journal()
    if to_journal:
        handler = systemd.journal.JournalHandler(
            SYSLOG_IDENTIFIER=f"tigerchat-{role}", TIGERCHAT_ROLE=role
        )
    else:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter(_FORMAT))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    log = logging.getLogger(role)
    if to_journal:  # on a terminal the supervisor says it
        log.info("process %d begins", os.getpid())
    return log
