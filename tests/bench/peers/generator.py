"""The load generator of a checkout of this program, run by that checkout's own code.

    PYTHONPATH=CHECKOUT python -P generator.py SITE_FOLDER

A process of its own: a question a line on its standard input, an answer a line on its output, both
JSON. It imports nothing of the bench, and of the checkout only what has stood there for long, so
that a tree of some months ago does as well as the newest.

A message is named by round, sender and room, which its body begins with, and by the number that its
device gave it. All that was acknowledged is kept, with the number it got in its room, until it is
looked up in the volumes in the end.
"""

import asyncio
import json
import socket
import ssl
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import uvloop

import appliance
from appliance.commands import format as format_verb
from appliance.commands import start as start_verb
from appliance.commands.benchmark import Disturbed, open_rooms
from appliance.drivers.chat.access import Access, local_access
from appliance.drivers.chat.client import Client
from appliance.drivers.chat.errors import ConnectionLost
from appliance.drivers.chat.pump import Listener, Load, Sender
from appliance.drivers.network.ask import ask_status
from appliance.drivers.nvme.reader import VolumeReader
from appliance.formats import record, settings
from appliance.formats.geometry import HEADER_SIZE, RECORD_SIZE, SESSION_BLOCK_SIZE
from appliance.formats.room_name import room_id_of
from appliance.formats.site import SITE_FILE, load_site
from appliance.simulation.workloads.chatter import Chatter

try:
    from appliance.roles.operator.volume_rows import wal_rows
except ImportError:  # a tree in which it still lay with the verb
    from appliance.commands.inspect import wal_rows

WARM_UP_S = 0.5
STALLED_S = 60.0
DIALS_AT_ONCE = 50
SECTOR = 4096
AUDIENCE_ROOM = "bench-audience"
AUDIENCE = 99  # the room's number in the names of what is said there
HEAD = b"round %05d sender %02d room %02d: "
_DIGITS = {"round": (6, 5), "sender": (19, 2), "room": (27, 2)}  # where they stand in it
_SEEN = np.dtype([("name", "<u8"), ("seq", "<u8")])
Row = dict[str, Any]


def body_of(round_number: int, sender: int, room: int, size: int) -> str:
    head = HEAD % (round_number, sender, room)
    return (head * (size // len(head) + 1))[:size].decode()


def name_of(round_number: int, sender: int, room: int, client_seq: np.ndarray) -> np.ndarray:
    """Whole numbers: a name each."""
    assert round_number < 100_000 and sender < 100 and room < 100
    high = (round_number * 100 + sender) * 100 + room
    return np.uint64(high << 34) + client_seq.astype(np.uint64)


class Generator:
    """Of the site in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._rounds = 0
        self._kept: list[np.ndarray] = []  # what was acknowledged: name, number in its room

    # --- questions

    def offers(self) -> Row:
        """Which checkout's code this is, and what it knows."""

        def options(command: Any) -> list[str]:
            return [
                word for option in command.params for word in (*option.opts, *option.secondary_opts)
            ]

        return {
            "top": str(Path(appliance.__file__).resolve().parents[1]),
            "settings": list(settings.KEYS),
            "format": options(format_verb.command),
            "start": options(start_verb.command),
        }

    def configure(self, chosen: Row) -> Row:
        """Write node.toml of every node."""
        for node in load_site(self._folder / SITE_FILE).nodes:
            path = self._folder / node.name / settings.SETTINGS_FILE
            path.write_text(settings.encode_settings(node.index, **chosen))
        return {}

    def status(self) -> Row:
        """Of each node: what its replica says, None if it is silent, and where clients come."""
        site = load_site(self._folder / SITE_FILE)
        shard = site.shards[0].number
        return {
            "replicas": [
                ask_status(self._folder / node.name / "sockets", cluster=site.cluster, shard=shard)
                for node in site.nodes
            ],
            "client_ports": [node.client_port for node in site.nodes],
        }

    def acknowledge(self, **wanted: Any) -> Row:
        return uvloop.run(self._acknowledge(**wanted))

    def fan_out(self, **wanted: Any) -> Row:
        return uvloop.run(self._fan_out(**wanted))

    def strangers(self) -> Row:
        """What somebody without a certificate meets at each replica's port: (TLS version, whether
        it is turned away)."""
        site = load_site(self._folder / SITE_FILE)
        found = []
        for node in site.nodes:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            address = node.host, node.peer_port + site.shards[0].number
            version, refused = None, False
            try:
                with socket.create_connection(address, STALLED_S) as bare:
                    with context.wrap_socket(bare) as secured:
                        version = secured.version()
                        refused = secured.recv(1) == b""
            except (ssl.SSLError, ConnectionError):
                refused = True
            found.append((version, refused))
        return {"peers": found}

    def search(self) -> Row:
        """In the volumes, which nobody uses now: what was acknowledged and is not in a majority of
        them, what is numbered otherwise than its acknowledgement said or stands there twice, and
        the chains."""
        kept = np.concatenate([np.zeros(0, dtype=_SEEN), *self._kept])
        site = load_site(self._folder / SITE_FILE)
        held = np.zeros(len(kept), dtype=int)
        moved, doubled, chains = np.zeros(len(kept), dtype=bool), 0, Chains()
        for place, node in enumerate(site.nodes):
            reader = VolumeReader(self._folder / node.name / f"shard-{site.shards[0].number}")
            chains_of_one = chains if place == 0 else None
            seen = np.unique(np.concatenate(list(records_in(reader, chains_of_one))))
            numbered = seen["name"][seen["seq"] != 0]
            doubled = max(doubled, len(numbered) - len(np.unique(numbered)))
            if not len(seen):
                continue
            # Of a name that is in the log and in a segment, only the latter has its number.
            seen = seen[np.append(seen["name"][1:] != seen["name"][:-1], True)]
            at = np.searchsorted(seen["name"], kept["name"])
            at = np.minimum(at, len(seen) - 1)
            there = seen["name"][at] == kept["name"]
            held += there
            told_at = there & (seen["seq"][at] != 0)
            moved |= told_at & (seen["seq"][at] != kept["seq"])
        lost = kept["name"][held < len(site.nodes) // 2 + 1]
        return {
            "acknowledged": len(kept),
            "lost_first": [told(int(name)) for name in lost[:5]],
            "lost": len(lost),
            "moved": int(np.count_nonzero(moved)),
            "doubled": doubled,
            "links": chains.links,
            "broken": chains.broken,
        }

    # --- rounds

    def _access(self, primary_only: bool) -> Access:
        access = local_access(self._folder, "bench")
        if not primary_only:
            return access
        leads = [
            (status["view"], node)
            for node, status in enumerate(self.status()["replicas"])
            if status and status["status"] == "normal" and status["role"] == "primary"
        ]
        if not leads:
            raise Disturbed("nobody leads")
        return Access([access.endpoints[max(leads)[1]]], access.token, self._folder)

    def _keep(self, names: np.ndarray, seqs: np.ndarray) -> None:
        rows = np.zeros(len(names), dtype=_SEEN)
        rows["name"], rows["seq"] = names, seqs
        self._kept.append(rows)

    async def _acknowledge(
        self, in_flight: int, seconds: float, senders: int, rooms: int, body_size: int
    ) -> Row:
        self._rounds += 1
        access = self._access(primary_only=True)
        chatter = Chatter(
            rooms=rooms, devices=min(senders, in_flight), in_flight=in_flight, body_size=body_size
        )
        await open_rooms(access, chatter.setup())
        ids = [room_id_of(name) for name in chatter.setup()]
        devices = list(chatter.start().values())
        ends = []
        for flows in devices:
            loads = [
                Load(ids[flow.room], self._body(flow.device, flow.room, body_size), flow.depth)
                for flow in flows
            ]
            ends.append(Sender(loads, True, lambda: None))
        try:
            for end in ends:
                await end.connect(access.endpoints[0], access.token())
            for end in ends:
                end.start()
            await pass_time(ends, WARM_UP_S)
            begin = time.perf_counter_ns()
            await pass_time(ends, seconds)
            until = time.perf_counter_ns()
            await drain(ends)
        finally:
            for flows, end in zip(devices, ends, strict=True):
                await end.close()
                self._keep_told(flows, end)  # also where the round came to nothing
        columns = [end.told() for end in ends]
        counted = np.concatenate(
            [c.latency_ns[(c.at_ns >= begin) & (c.at_ns < until)] for c in columns]
        )
        if not len(counted):
            raise Disturbed("nothing was acknowledged")
        p50, p99 = np.percentile(counted, [50, 99]) / 1e6
        return {
            "messages": len(counted),
            "seconds": (until - begin) / 1e9,
            "p50_ms": float(p50),
            "p99_ms": float(p99),
            "whole": sum(end.acked for end in ends),
        }

    def _keep_told(self, flows: list[Any], end: Sender) -> None:
        column = end.told()
        for position, at in enumerate(end.order):
            flow, mine = flows[at], column[0] == position  # its name differs from tree to tree
            names = name_of(self._rounds, flow.device, flow.room, column.client_seq[mine])
            self._keep(names, column.op[mine])

    def _body(self, sender: int, room: int, size: int) -> bytes:
        return body_of(self._rounds, sender, room, size).encode()

    async def _fan_out(self, listeners: int, messages: int, window: int, body_size: int) -> Row:
        self._rounds += 1
        access = self._access(primary_only=False)
        (room_id,) = await open_rooms(access, [AUDIENCE_ROOM])
        ends = [Listener(room_id, body_size, lambda: None) for _ in range(listeners)]
        gate = asyncio.Semaphore(DIALS_AT_ONCE)

        async def open_one(place: int, end: Listener) -> None:
            async with gate:
                where = access.endpoints[place % len(access.endpoints)]
                await end.connect(where, access.token())
                await end.listen()

        body = body_of(self._rounds, 0, AUDIENCE, body_size)
        said: list[asyncio.Future[Any]] = []
        try:
            await asyncio.gather(*(open_one(place, end) for place, end in enumerate(ends)))
            async with Client(access.endpoints, access.token) as speaker:
                begin, slowest = time.perf_counter(), 0
                heard = time.monotonic()
                while slowest < messages:
                    for _ in range(min(messages, slowest + window) - len(said)):
                        said.append(await speaker.post(room_id, body))
                    await asyncio.sleep(0.001)
                    check(ends)
                    delivered = min(end.delivered for end in ends)
                    if delivered > slowest:
                        heard, slowest = time.monotonic(), delivered
                    elif time.monotonic() - heard > STALLED_S:
                        raise Disturbed(f"a listener stopped at {slowest} of {messages}")
                seconds = time.perf_counter() - begin
                await asyncio.gather(*said)
        finally:
            await asyncio.gather(*(end.close() for end in ends))
            answered = [one for one in said if one.done() and not one.cancelled()]
            acks = [one.result() for one in answered if one.exception() is None]
            numbers = np.array([ack.client_seq for ack in acks], dtype=np.uint64)
            ops = np.array([ack.op for ack in acks], dtype=np.uint64)
            self._keep(name_of(self._rounds, 0, AUDIENCE, numbers), ops)
        return {"per_s": listeners * messages / seconds, "whole": listeners * messages}


# --- of a round -----------------------------------------------------------------------------------


async def pass_time(ends: list[Sender], seconds: float) -> None:
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        await asyncio.sleep(min(left, 0.1))
        check(ends)


async def drain(ends: list[Sender]) -> None:
    """Until everything that was sent is acknowledged."""
    for end in ends:
        end.stop()
    until = time.monotonic() + STALLED_S
    while any(end.waiting for end in ends):
        if time.monotonic() > until:
            raise Disturbed("messages stayed unanswered")
        check(ends)
        await asyncio.sleep(0.01)


def check(ends: Any) -> None:
    for end in ends:
        if end.failure:
            raise Disturbed(f"the site answered {end.failure}")
        if end.connection is not None and end.connection.lost.done():
            raise Disturbed(f"a connection was lost: {end.connection.lost.result()}")


# --- in the volumes -------------------------------------------------------------------------------


class Chains:
    """Links of rooms' chains: each record names the hash of the one before it in its room."""

    def __init__(self) -> None:
        self.links = self.broken = 0
        self._heads: dict[bytes, tuple[int, bytes]] = {}  # room -> number, hash

    def on_record(self, raw: bytes) -> None:
        room = raw[record.ROOM_ID : record.ROOM_ID + 16]
        number = int.from_bytes(raw[record.SEQ : record.SEQ + 8], "little")
        before = raw[record.PREV_HASH : record.PREV_HASH + 32]
        known = self._heads.get(room, (0, bytes(32)))
        self.links += 1
        self.broken += known != (number - 1, before) or not record.sealed(raw)
        self._heads[room] = number, record.record_hash(raw)


def records_in(reader: VolumeReader, chains: Chains | None) -> Any:
    """What the bench has said, as it stands in the log and in the segments of a volume. Records of
    a log are not numbered yet."""
    geometry = reader.geometry
    yield np.zeros(0, dtype=_SEEN)
    for row in wal_rows(reader, records=False):
        if row["kind"] != "slot" or not row["body_ok"]:
            continue
        address = geometry.wal_prepares_offset + row["slot"] * geometry.message_size_max
        size = HEADER_SIZE + row["body_size"]
        data = reader.read(address, -(-size // SECTOR) * SECTOR)
        count = (row["body_size"] - SESSION_BLOCK_SIZE) // RECORD_SIZE
        if data is not None and count > 0:
            first = HEADER_SIZE + SESSION_BLOCK_SIZE
            yield seen_in(data[first : first + count * RECORD_SIZE])
    segments = {}
    for extent in reader.extents():
        head = reader.read_extent_start(extent)
        first = 0 if head is None else int.from_bytes(head[record.LOG_SEQ :][:8], "little")
        if first:
            segments[first] = extent
    for first, extent in sorted(segments.items()):
        data = reader.read_extent(extent)
        if data is None:
            continue
        columns = np.frombuffer(data[: geometry.segment_records * RECORD_SIZE], record.RECORD)
        wanted = np.arange(first, first + len(columns), dtype=np.uint64)
        count = int(np.argmin(np.append(columns["log_seq"] == wanted, False)))
        used = data[: count * RECORD_SIZE]
        yield seen_in(used)
        if chains is not None:
            for at in range(0, len(used), RECORD_SIZE):
                chains.on_record(used[at : at + RECORD_SIZE])


def seen_in(data: bytes) -> np.ndarray:
    """Names and numbers of the records that begin as a body of the bench does."""
    columns = np.frombuffer(data, record.RECORD)
    size = len(HEAD % (0, 0, 0))
    text = np.frombuffer(data, np.uint8).reshape(-1, RECORD_SIZE)[:, record.BODY :][:, :size]
    columns, text = columns[ours := (text[:, :6] == list(b"round ")).all(axis=1)], text[ours]
    names = np.zeros(len(columns), dtype=np.uint64)
    for start, count in _DIGITS.values():
        for digit in range(start, start + count):
            names = names * np.uint64(10) + (text[:, digit] - 48).astype(np.uint64)
    rows = np.zeros(len(columns), dtype=_SEEN)
    rows["name"] = (names << np.uint64(34)) + columns["client_seq"]
    rows["seq"] = columns["seq"]
    return rows


def told(name: int) -> str:
    high, number = divmod(name, 1 << 34)
    rest, room = divmod(high, 100)
    return f"round {rest // 100} sender {rest % 100} room {room} number {number}"


def main() -> None:
    generator = Generator(Path(sys.argv[1]))
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            answer = getattr(generator, asked.pop("what"))(**asked)
        except (Disturbed, ConnectionLost) as error:
            answer = {"disturbed": str(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
