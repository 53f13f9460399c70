"""`tigerchat import`: store an archive of mail or of another chat in rooms.

What an archive becomes does not depend on when, or how often, it is imported: device, numbers and
ids follow from the source (`formats/archive/plan`). So a second run stores nothing twice, whatever
interrupted the first one: the state file beside the source says from where to go on, and where it
is behind, or lost, the site recognises the device's numbers.
"""

import asyncio
import fcntl
import json
import os
import sys
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import click
import jwt

from appliance.base.errors import ArchiveError, ConfigurationError, StorageError
from appliance.base.json_text import parse_json
from appliance.base.limits import ROOM_NAME_SIZE_MAX
from appliance.base.printable import counted, one_line
from appliance.drivers.chat.access import RIGHTS_IMPORT, Access, access_of
from appliance.drivers.chat.client import Client
from appliance.drivers.chat.errors import Refused
from appliance.drivers.host.durable_file import write_durable
from appliance.drivers.terminal.options import SiteWords, site_options
from appliance.drivers.terminal.way_out import bare
from appliance.formats.archive import irc, mbox, slack
from appliance.formats.archive.entry import Entry, OnBroken, refuse
from appliance.formats.archive.naming import Naming
from appliance.formats.archive.plan import MARK_START, Message, Plan, device_of
from appliance.formats.client.sending import MessageAck
from appliance.formats.client_errors import DuplicateExpired
from appliance.formats.record import KIND_IMPORTED
from appliance.formats.room_name import room_name_valid

KINDS = ("mbox", "irssi", "weechat", "slack")
SUFFIXES = {"mbox": (".mbox", ".mbx"), "irssi": (".log",), "weechat": (".weechatlog", ".log")}
FILES_MAX = 10_000  # in a folder of logs
IN_FLIGHT_MAX = 1024  # messages waiting for their acknowledgement
SAVE_EVERY_S = 1.0
COMPLAINTS_SHOWN = 10
ROOMS_SHOWN = 5  # private ones that nobody asked for
STATE_VERSION = 1
_BODIES = "author and time as fields"  # tells the device from that of another form of bodies


class Source(NamedTuple):
    """An archive: one file, or a folder of them."""

    kind: str
    path: Path

    def files(self) -> list[Path]:
        """The files to read, in order."""
        if not self.path.is_dir():
            return [self.path]
        endings = SUFFIXES.get(self.kind, (".zip",))
        found = sorted(p for p in self.path.rglob("*") if p.is_file() and p.name.endswith(endings))
        if not found or len(found) > FILES_MAX:
            raise ConfigurationError(
                f"{self.path} holds {len(found)} files {' '.join(endings)}; "
                f"allowed: 1 to {FILES_MAX}"
            )
        return found

    def entries(self, on_broken: OnBroken) -> Iterator[Entry]:
        """All entries, file by file."""
        naming = Naming()
        for path in self.files():
            try:
                with path.open("rb") as file:
                    yield from self._read(file, path, on_broken, naming)
            except OSError as error:
                raise StorageError(f"{path}: {error.strerror}") from error

    def _read(self, file: Any, path: Path, on_broken: OnBroken, naming: Naming) -> Iterator[Entry]:
        if self.kind == "slack":
            return slack.read(file, str(path), on_broken)
        if self.kind == "mbox":
            return mbox.read(file, str(path), path.stem, on_broken, naming)
        named, read = (
            (irc.irssi_log, irc.read_irssi)
            if self.kind == "irssi"
            else (irc.weechat_log, irc.read_weechat)
        )
        log = named(path.name)
        # Of a whole folder, what is no channel is two people who talk to each other.
        private = not log.is_channel and self.path.is_dir()
        wanted = f"direct/{log.room}" if private else log.room
        server = log.server or path.parent.name
        room = naming.of(f"{server} {log.channel}", wanted, f"{log.channel} of {server}")
        rooms = irc.Rooms(room, log, server, naming)
        entries = read(file, str(path), room, on_broken, rooms)
        return (entry._replace(private=True) for entry in entries) if private else entries


class Private:
    """What was said where not everybody could read it: imported only if somebody asks for it."""

    def __init__(self, wanted: bool | None) -> None:
        self._wanted = wanted  # None: nobody said
        self.messages: Counter[str] = Counter()  # by room

    def sift(self, entries: Iterator[Entry]) -> Iterator[Entry]:
        """The entries that are imported; the others are counted."""
        self.messages.clear()
        for entry in entries:
            if entry.private:
                self.messages[entry.room] += 1
            if not entry.private or self._wanted:
                yield entry

    def refuse_unasked(self, path: Path) -> None:
        """ConfigurationError when there are some, and nobody said what becomes of them."""
        if self._wanted is not None or not self.messages:
            return
        rooms = sorted(self.messages)
        more = f" and {len(rooms) - ROOMS_SHOWN} more" if len(rooms) > ROOMS_SHOWN else ""
        raise ConfigurationError(
            f"{path} holds {self.told()}, {one_line(', '.join(rooms[:ROOMS_SHOWN]))}{more}: say "
            "--private to have them in rooms of these names, which every token that may read such "
            "a name can open, or --public-only to leave them out"
        )

    def told(self) -> str:
        """How many."""
        total = self.messages.total()
        conversations = counted(len(self.messages), "private conversation")
        return f"{conversations} of {counted(total, 'message')}"

    def closing(self) -> str:
        """For the line at the end."""
        if not self.messages:
            return ""
        return f"; {self.told()} {'among them' if self._wanted else 'left out'}"


@click.command("import")
@click.argument("kind", type=click.Choice(KINDS))
@click.argument("path", type=click.Path(path_type=Path, exists=True))
@click.option("--room", metavar="NAME", help="Put everything into this room.")
@click.option(
    "--state",
    "state_path",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Where to note how far it got.  [default: beside PATH]",
)
@click.option(
    "--skip-broken",
    is_flag=True,
    help="Count what cannot be read, and go on; the exit code is 1 if there was any.",
)
@click.option(
    "--private/--public-only",
    "private_wanted",
    default=None,
    help="Whether conversations that not everybody could read become rooms, private/NAME and "
    "direct/NAMES, or are left out; one of both has to be said if there are any.",
)
@site_options
def command(
    kind: str,
    path: Path,
    room: str | None,
    state_path: Path | None,
    skip_broken: bool,
    private_wanted: bool | None,
    site: SiteWords,
) -> None:
    """Import an archive: PATH is an mbox, a log of irssi or weechat (or a folder of such), or a
    Slack export zip. Rooms are made as needed; author and time of then are kept with each
    message. A token of --token-file needs the right import.

    Run again, it goes on where it was interrupted and stores nothing twice.
    """
    if room is not None and not room_name_valid(room):
        raise ConfigurationError(
            f"--room is {room[:40]!r}; allowed: 1 to {ROOM_NAME_SIZE_MAX} "
            "bytes of printable text, no space at either end"
        )
    access = access_of(**site._asdict(), rights=RIGHTS_IMPORT)
    source = Source(kind, path.resolve())
    names = kind, str(source.path), room or "", _author(access)
    device = device_of(*names, _BODIES)
    if state_path is None:
        state_path = _state_path(path, device)
        _refuse_earlier(_state_path(path, device_of(*names)))
    state = State.load(state_path, device)
    complaints, private = Complaints(skip_broken), Private(private_wanted)

    def entries() -> Iterator[Entry]:
        return private.sift(source.entries(complaints.on_broken))

    plan = Plan(device, room)
    changed = plan.survey(entries(), state.marks())
    private.refuse_unasked(path)
    if changed:
        raise ConfigurationError(
            f"{path} is not what was imported into room {changed[0]} before: "
            f"restore it, or import it under another name"
        )
    complaints.quiet = True
    if not plan.entries:
        raise ArchiveError(
            str(path),
            1,
            f"nothing to store in what was read as {kind}: 0 entries"
            f"{private.closing()}{complaints.closing()}",
        )
    with locked(source.path):
        stored = asyncio.run(Import(access, plan, state, device).run(entries()))
    total = sum(plan.rooms.values())
    click.echo(
        f"import: {counted(plan.entries, 'entry', 'entries')}, {counted(total, 'message')} in "
        f"{counted(len(plan.rooms), 'room')}; "
        f"{total - stored} were there before, {stored} stored now"
        f"{private.closing()}{complaints.closing()}"
    )
    if complaints.count:
        click.get_current_context().exit(1)


def _state_path(path: Path, device: UUID) -> Path:
    return path.with_name(f"{path.name}.{device.hex[:8]}.import")


def _refuse_earlier(state: Path) -> None:
    """An earlier program numbered the pieces of long texts otherwise: both would be stored."""
    if state.exists():
        raise ConfigurationError(
            f"{state}: an earlier version has imported this, with author and time in the texts; "
            "to store it once more, with both as fields, remove that file or name one by --state"
        )


def _author(access: Access) -> str:
    try:
        return str(jwt.decode(access.token(), options={"verify_signature": False})["sub"])
    except (jwt.PyJWTError, KeyError, ValueError) as error:
        raise ConfigurationError(f"the token cannot be read: {error}") from None


class Complaints:
    """Counts what could not be read, or ends the import over the first."""

    def __init__(self, skip: bool) -> None:
        self.count, self.quiet, self._skip = 0, False, skip

    def closing(self) -> str:
        """For the line at the end."""
        return f"; {counted(self.count, 'broken place')} skipped" if self.count else ""

    def on_broken(self, error: ArchiveError) -> None:
        if not self._skip:
            advice = f"{error.reason}; mend it, or leave such places out with --skip-broken"
            refuse(ArchiveError(error.file, error.line, advice))
        if self.quiet:
            return
        self.count += 1
        if self.count <= COMPLAINTS_SHOWN:
            click.echo(f"import: skipped: {one_line(str(error))}", err=True)


class State:
    """How far each room got: position and mark of the newest message known to be stored."""

    def __init__(self, path: Path, device: UUID, rooms: dict[str, tuple[int, bytes]]) -> None:
        self.path, self.device, self.rooms = path, device, rooms
        self.saved_at = time.monotonic()

    @classmethod
    def load(cls, path: Path, device: UUID) -> "State":
        """The state in `path`; an empty one when there is no file."""
        if not path.exists():
            return cls(path, device, {})
        try:
            plain = parse_json(path.read_text())
            if plain["version"] != STATE_VERSION or UUID(plain["device"]) != device:
                raise ValueError("of another import")
            rooms = {
                str(name): (int(position), bytes.fromhex(mark))
                for name, (position, mark) in plain["rooms"].items()
            }
        except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
            raise ConfigurationError(
                f"{path} is no state of this import ({error}): remove it; "
                "what is stored will be recognised"
            ) from None
        return cls(path, device, rooms)

    def marks(self) -> dict[str, tuple[int, bytes]]:
        """As `Plan.survey` wants them."""
        return {name: mark for name, mark in self.rooms.items() if mark[0]}

    def position(self, room: str) -> int:
        return self.rooms.get(room, (0, MARK_START))[0]

    def advance(self, room: str, position: int, mark: bytes) -> None:
        """A message is stored, as are all before it in the room; saved now and then."""
        assert position == self.position(room) + 1
        self.rooms[room] = position, mark
        if time.monotonic() - self.saved_at >= SAVE_EVERY_S:
            self.save()

    def save(self) -> None:
        """Whole or not at all."""
        rooms = {name: (position, mark.hex()) for name, (position, mark) in self.rooms.items()}
        plain = {"version": STATE_VERSION, "device": str(self.device), "rooms": rooms}
        try:
            write_durable(self.path, json.dumps(plain, ensure_ascii=False))
        except OSError as error:
            raise StorageError(
                f"{self.path}: {error.strerror}: name another file with --state"
            ) from error
        self.saved_at = time.monotonic()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """One import of a source at a time: two would number the same messages at once."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise ConfigurationError(f"{path}: another import of it is running") from None
    finally:
        os.close(fd)


class Import:
    """Sends what is not stored yet, many messages at a time."""

    def __init__(self, access: Access, plan: Plan, state: State, device: UUID) -> None:
        self.access, self.plan, self.state, self.device = access, plan, state, device
        self.rooms: dict[str, UUID] = {}
        self.counts: dict[UUID, int] = {}  # messages in each room before this run
        self.stored = 0  # acknowledged with an op beyond those
        self._waiting: deque[tuple[Message, asyncio.Future[MessageAck]]] = deque()

    async def run(self, entries: Iterator[Entry]) -> int:
        """Send everything; how many messages were not there before."""
        async with Client(
            self.access.endpoints, self.access.token, client_id=self.device
        ) as client:
            for name in self.plan.rooms:
                await self._open(client, name)
            self.counts = {room.room_id: room.message_count for room in await client.rooms()}
            total = sum(self.plan.rooms.values())
            messages = self.plan.messages(entries)
            with click.progressbar(
                length=total, label="importing", file=bare(sys.stderr), show_pos=True
            ) as bar:
                try:
                    for message in messages:
                        await self._send(client, message, bar)
                    while self._waiting:
                        await self._settle(bar)
                finally:
                    self.state.save()
        return self.stored

    async def _open(self, client: Client, name: str) -> None:
        """Have the room, and know from which number on to send."""
        room = await client.create_room(name)
        if room.created and self.state.position(name):
            click.echo(
                f"import: room {one_line(name)} is new here: starting at its beginning", err=True
            )
            del self.state.rooms[name]
        self.rooms[name] = room.room_id
        client.start_at(room.room_id, self.state.position(name) + 1)

    async def _send(self, client: Client, message: Message, bar: Any) -> None:
        room_id = self.rooms[message.room]
        if message.position < client.next_seq(room_id):
            bar.update(1)
            return
        while len(self._waiting) >= IN_FLIGHT_MAX or (self._waiting and self._waiting[0][1].done()):
            await self._settle(bar)
        done = await client.post(
            room_id,
            message.body,
            msg_id=message.msg_id,
            parent_id=message.parent_id,
            kind=KIND_IMPORTED,
        )
        self._waiting.append((message, done))

    async def _settle(self, bar: Any) -> None:
        """Wait for the oldest acknowledgement."""
        message, done = self._waiting.popleft()
        try:
            ack = await done
            self.stored += ack.op > self.counts.get(ack.room_id, 0)
        except Refused as refused:
            if refused.answer.error != DuplicateExpired.code:
                raise
        self.state.advance(message.room, message.position, message.mark)
        bar.update(1)
