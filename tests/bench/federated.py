"""What federation costs: two sites of a node each share a room, on this machine.

write while one is away     records of a room, at the other
it comes back               seconds until its log has all of them, its start included
bytes                       that a message of another site takes, in the log and in the channel;
                            also one of a long text that no packing makes shorter
rate of other rooms         with the federation running and standing still, by turns
"""

import asyncio
import random
import statistics
import string
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import Any
from uuid import UUID

from appliance.drivers.chat.client import Client
from appliance.drivers.store.store import Store
from appliance.formats.geometry import RECORD_SIZE
from appliance.formats.room_name import room_id_of
from appliance.formats.status.federation import SharedRoomStatus
from appliance.roles.federation.role import STORE_FOLDER
from appliance.roles.federation.rooms import channel_name, split
from appliance.roles.federation.store import DATABASE
from tests.bench.shipping import load
from tests.patience import HUNG_S
from tests.system.federated_site import FederatedSite, said
from tests.system.local_site import wait_until

ROOM, BODY = "shared", "x" * 256
LONG, LONG_QUICK = 2_000, 100
LONG_LETTERS, LETTERS = 2_000, string.ascii_letters + string.digits + " ."
MISSED, MISSED_QUICK = 10_000, 300
IN_FLIGHT = 512
CAUGHT_UP_S_MAX = 10.0
STORED_RATIO_MAX = 2.0  # the record of the log included
ROUNDS, ROUND_S = 40, 1.0
RATE_RATIO_MIN = 0.95
_LOOK_S, _SETTLE_S = 0.05, 0.2

Say = Callable[[str], None]


def measure(
    here: FederatedSite, there: FederatedSite, quick: bool, say: Say
) -> list[dict[str, Any]]:
    """Rows of all figures. Both sites have one node, and nobody who starts a role again."""
    rows: list[dict[str, Any]] = []

    def note(what: str, value: float, unit: str, held: bool, bar: str) -> None:
        say(f"{what}: {value:g} {unit} ({bar})")
        row = {"kind": "federation", "what": what, "value": value, "unit": unit}
        rows.append(row | {"held": held, "bar": bar})

    share(here, there)
    count = MISSED_QUICK if quick else MISSED
    took = catch_up(here, there, count, say)
    note(f"catching up on {count} messages of another site", round(took, 2), "s",
         took < CAUGHT_UP_S_MAX, f"below {CAUGHT_UP_S_MAX:g}")  # fmt: skip
    ratio = (RECORD_SIZE + stored(there) / count) / RECORD_SIZE
    note("bytes stored of a message of another site", round(ratio, 2), "times its record",
         ratio <= STORED_RATIO_MAX, f"at most {STORED_RATIO_MAX:g}")  # fmt: skip
    ratio = stored_long(here, there, LONG_QUICK if quick else LONG)
    note(f"bytes stored of a message of {LONG_LETTERS} random letters", round(ratio, 2),
         "times its records", ratio <= STORED_RATIO_MAX,
         f"at most {STORED_RATIO_MAX:g}")  # fmt: skip
    ratio = rate_beside(here, 1 if quick else ROUNDS, ROUND_S, say)
    note("messages/s of rooms that are not shared", round(ratio, 3), "times without federation",
         ratio >= RATE_RATIO_MIN, f"at least {RATE_RATIO_MIN}")  # fmt: skip
    return rows


def share(here: FederatedSite, there: FederatedSite) -> None:
    """Both know each other and carry the room."""
    here.know(there)
    there.know(here)
    said("room", "create", ROOM, "--local", str(here.folder))
    here.send(ROOM, "begin")
    accept = here.federation("share", ROOM, "--with", there.name).removeprefix("tigerchat ")
    said(*accept.split(), "--local", str(there.folder))
    wait_until(lambda: all(settled(site, 1) for site in (here, there)), 60, "both carry it")


def room_of(site: FederatedSite) -> SharedRoomStatus | None:
    """The room as the site tells of it; None while nobody there carries it."""
    return next(iter(site.rooms()), None)


def settled(site: FederatedSite, count: int) -> bool:
    """Whether its channel has so many messages, and all of them are acknowledged."""
    room = room_of(site)
    return room is not None and room.log == count and not room.unacknowledged


def catch_up(here: FederatedSite, there: FederatedSite, count: int, say: Say) -> float:
    """Seconds from the start of the other site's federation until its log has all that was said
    here while it was away."""
    before = log_seq(there)
    there.end_role(0, "federation")
    asyncio.run(write(here, count))
    wait_until(lambda: in_channel(here) == 1 + count, 60, lambda: f"said: {here.rooms()}")
    began, linked = time.perf_counter(), 0.0
    there.start_role(0, "federation")
    while log_seq(there) < before + count:
        assert time.perf_counter() - began < HUNG_S, there.rooms()
        if log_seq(there) <= before + 1:  # its claim, and nothing of the other site yet
            linked = time.perf_counter() - began
        time.sleep(_LOOK_S)
    took = time.perf_counter() - began
    say(
        f"{count} messages missed: the first after {linked:.1f} s, all after {took:.1f} s, "
        f"{count / (took - linked):.0f}/s"
    )
    wait_until(lambda: settled(here, 1 + count), 120, lambda: f"acknowledged: {here.rooms()}")
    assert in_channel(there) == 1 + count, "each once"
    return took


def log_seq(site: FederatedSite) -> int:
    """Records of the site's log."""
    return int(site.answer(0)["log_seq"])


def in_channel(site: FederatedSite) -> int:
    room = room_of(site)
    return 0 if room is None else room.log


async def write(site: FederatedSite, count: int, text: Callable[[], str] = lambda: BODY) -> None:
    """So many messages in the room, many of them under way at a time."""
    access = site.access()
    room = UUID(int=int.from_bytes(room_id_of(ROOM), "little"))
    async with Client(access.endpoints, access.token) as client:
        for first in range(0, count, IN_FLIGHT):
            turn = range(first, min(first + IN_FLIGHT, count))
            await asyncio.gather(*[await client.post(room, text()) for _ in turn])


def stored(site: FederatedSite) -> int:
    """Bytes that the channel of the room takes in the store of the node that carries it."""
    folder = site.place(0) / STORE_FOLDER / "0" / channel_name(room_id_of(ROOM))
    store = Store(folder, [DATABASE], 1, read_only=True)
    try:
        figures = store.figures()
        return figures.used_size - figures.free_size
    finally:
        store.close()


def stored_long(here: FederatedSite, there: FederatedSite, count: int) -> float:
    """What long texts take at the other site, beside the records that each is cut into there."""
    before, size = in_channel(there), stored(there)
    chance = random.Random(1)
    asyncio.run(write(here, count, lambda: "".join(chance.choices(LETTERS, k=LONG_LETTERS))))
    parts = count * len(split(bytes(LONG_LETTERS)))
    wait_until(lambda: settled(here, before + parts), 120, lambda: f"said: {here.rooms()}")
    assert in_channel(there) == before + parts, "each once"
    return 1 + (stored(there) - size) / parts / RECORD_SIZE


def rate_beside(site: FederatedSite, rounds: int, seconds: float, say: Say) -> float:
    """Records a second of rooms that nobody shares, while the federation runs, by those while it
    stands still; by turns under one load, as no two loads are alike: the median of the ratios.
    """
    running: list[float] = []
    still: list[float] = []
    with ThreadPoolExecutor(1) as pool:
        loading = pool.submit(load, site, round(2 * rounds * (seconds + _SETTLE_S)) + 5)
        began = log_seq(site)
        wait_until(lambda: log_seq(site) > began + 1_000, 60, "it is loaded")
        for number in range(rounds):
            for runs in (True, False) if number % 2 else (False, True):
                with nullcontext() if runs else standing_still(site):
                    (running if runs else still).append(rate(site, seconds))
        assert not loading.done(), "measured beside nothing"
        loading.result()
    ratios = [with_it / without for with_it, without in zip(running, still, strict=True)]
    say(
        f"rooms that are not shared: {statistics.median(running):.0f}/s beside "
        f"{statistics.median(still):.0f} without, quartiles of {rounds} ratios "
        f"{' '.join(f'{found:.3f}' for found in quartiles(ratios))}"
    )
    return statistics.median(ratios)


def quartiles(ratios: list[float]) -> list[float]:
    return statistics.quantiles(ratios) if len(ratios) > 1 else ratios


def standing_still(site: FederatedSite) -> AbstractContextManager[None]:
    """Its federation is stopped where it stands."""
    return site.standing_still(site.processes(role="federation"))


def rate(site: FederatedSite, seconds: float) -> float:
    """Records a second that the site's log takes."""
    time.sleep(_SETTLE_S)
    count, began = log_seq(site), time.perf_counter()
    time.sleep(seconds)
    return (log_seq(site) - count) / (time.perf_counter() - began)
