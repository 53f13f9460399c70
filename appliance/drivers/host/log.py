"""The log of a process: to the journal with its fields, else to stderr, a line each."""

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
    if in_journal():
        handler = systemd.journal.JournalHandler(SYSLOG_IDENTIFIER=f"tigerchat-{role}")
    else:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter(_FORMAT))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    return logging.getLogger(role)
