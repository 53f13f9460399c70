"""The log of a corrected clock is looked through beside the loop: who watches it is answered."""

import asyncio
import threading
from typing import Any, cast

from appliance.cores.shipping.seams import SeekSeams
from appliance.cores.shipping.shipper import Shipper
from appliance.cores.shipping.source import Source
from appliance.roles.shipper.shard import ShardShipping


class Asked:
    """In place of core and source: which thread was asked what."""

    def __init__(self) -> None:
        self.threads: list[int] = []
        self.done: list[object] = []

    def seek_seams(self, ahead_us: int, log_seq: int) -> None:
        assert (ahead_us, log_seq) == (7, 9)
        self.threads.append(threading.get_ident())

    def on_done(self, step: object) -> None:
        self.done.append(step)


def test_segments_are_read_in_another_thread_than_the_loops() -> None:
    asked, step = Asked(), SeekSeams(7, 9)
    shipping: Any = ShardShipping.__new__(ShardShipping)
    shipping.core = cast(Shipper, asked)
    asyncio.run(shipping._do(step, cast(Source, asked)))
    assert asked.done == [step]
    assert asked.threads and threading.get_ident() not in asked.threads
