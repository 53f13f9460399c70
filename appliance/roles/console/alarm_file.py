"""What a console knows of alarms over its end: a day of them, and how long durable writes took."""

import asyncio
import logging
import time
from pathlib import Path
from typing import Any

from appliance.base.errors import StorageError
from appliance.cores.console.alarm_life import AlarmLife, Raised
from appliance.cores.console.usual import Usual
from appliance.drivers.host.kept_file import KeptFile

ALARMS_FILE = "console-alarms.json"  # in the node's folder
SIZE_MAX = 8 << 20  # bytes: more than 500 alarms, and a day of figures of 300 replicas
EVERY_S = 600.0  # figures alone are written no oftener


class AlarmFile:
    """`remember` once, before the first look; `keep` after each. Words of an alarm that change each
    second are not written for themselves."""

    def __init__(self, folder: Path, life: AlarmLife, usual: Usual, log: logging.Logger) -> None:
        self._file = KeptFile(folder / ALARMS_FILE, SIZE_MAX, log)
        self._life, self._usual, self._log = life, usual, log
        self._written: list[tuple[Any, ...]] = []
        self._due_s = 0.0

    def remember(self) -> None:
        kept = self._file.read()
        if not kept:
            return
        try:
            self._life.restore(kept["alarms"])
            self._usual.restore(kept["usual"])
        except (KeyError, TypeError, ValueError):
            self._file.complain()

    async def keep(self) -> None:
        now_s, facts = time.monotonic(), [_facts(row) for row in self._life.rows()]
        if facts == self._written and now_s < self._due_s:
            return
        self._written, self._due_s = facts, now_s + EVERY_S
        value = {"alarms": self._life.kept(), "usual": self._usual.kept()}
        try:
            await asyncio.to_thread(self._file.write, value)
        except StorageError as error:
            self._log.error("alarms are kept in memory alone: %s", error)


def _facts(row: Raised) -> tuple[Any, ...]:
    return row.name, row.subject, row.severity, row.raised_ms, row.cleared_ms, row.seen_by
