"""How each act of the table is done, by the functions of its verb, or by the verb itself. What came
of it a poll shows, or the verb says that has seen it."""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

from appliance.base.errors import ConfigurationError, StorageError
from appliance.base.printable import one_line
from appliance.cores.console.about import About
from appliance.cores.console.acts import BY_NAME
from appliance.cores.console.alarm_life import AlarmLife, not_held
from appliance.cores.console.room_acts import whom_written
from appliance.cores.console.site_acts import NO_NODE_ADDED, NO_SHIPPER, SHIPPER
from appliance.cores.console.stakes import NONE, replica_shard
from appliance.drivers.chat.access import RIGHTS_OPERATOR, Access, local_access, local_token
from appliance.drivers.chat.at_room import at_room
from appliance.drivers.chat.client import Client
from appliance.drivers.chat.token import parse_duration, parse_rights
from appliance.drivers.host import clock
from appliance.drivers.host.node_folder import NodeFolder, read_node
from appliance.drivers.network.ask import ask_status
from appliance.formats.author import OPERATOR
from appliance.formats.client.rooms import RoomRightsAnswer, RoomState
from appliance.formats.room_limits import Limits, whom_words
from appliance.formats.site import SITE_FILE
from appliance.formats.status.console import SEEN
from appliance.roles.console.verb_process import run_verb
from appliance.roles.operator.clock_correcting import correct_to
from appliance.roles.operator.farm import member_named
from appliance.roles.operator.keeping import Keeper
from appliance.roles.operator.leading import scrub, step_down
from appliance.roles.operator.membership import exchange, take_out
from appliance.roles.operator.room_creating import create_room
from appliance.roles.operator.volumes import lost_volumes

ANSWER_S = 5.0  # for a process that is there and busy
Sockets = Callable[[int], Path]


@dataclass(frozen=True, slots=True)
class Order:
    """An act: with a node whose keys open connections, where the processes of this machine's nodes
    answer, and which nodes those are."""

    about: About
    node: NodeFolder
    sockets: Sockets
    here: frozenset[int] = frozenset()
    written: Mapping[str, str] = field(default_factory=dict)
    who: str = ""
    life: AlarmLife = field(default_factory=AlarmLife)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What to say of it once it is seen. `text` or `file` are for whoever began it, once, and for
    nobody else: not told in any list, nor written anywhere."""

    words: str = SEEN
    text: str = field(default="", repr=False)
    file: bytes = field(default=b"", repr=False)
    file_name: str = ""


Perform = Callable[[Order], Awaitable[Outcome | None]]


def _kept(call: Callable[[Keeper, About], None]) -> Perform:
    """What the supervisor of the node is asked, in a thread: it may be busy."""

    async def run(order: Order) -> None:
        keeper = Keeper(order.sockets(order.about.node), order.node.site.cluster)
        await asyncio.to_thread(call, keeper, order.about)

    return run


async def _step_down(order: Order) -> None:
    about = order.about
    assert about.shard != NONE
    folder, cluster = order.sockets(about.node), order.node.site.cluster
    await asyncio.to_thread(step_down, folder, cluster=cluster, shard=about.shard)


async def _scrub(order: Order) -> None:
    folder, cluster = order.sockets(order.about.node), order.node.site.cluster
    shard = replica_shard(order.about.process)
    await asyncio.to_thread(scrub, folder, cluster=cluster, shard=shard)


def _say_nothing(line: str) -> None:
    """The list of acts says it."""


async def _promote(order: Order) -> None:
    up, down = order.about.node, order.about.other
    await exchange(order.node, up, down, verb="", say=_say_nothing)


async def _retire(order: Order) -> None:
    up, down = order.about.other, order.about.node
    await exchange(order.node, up, down, verb="", say=_say_nothing)


def _folder_of(order: Order) -> Path:
    return order.sockets(order.about.node).parent


async def _recover(order: Order) -> None:
    await run_verb(["recover", "--node-folder", str(_folder_of(order)), "--once"])


def _check_lost(order: Order) -> None:
    lost_volumes(read_node(_folder_of(order)))


async def _remove(order: Order) -> None:
    await take_out(order.node, order.about.node, verb="", say=_say_nothing)


# --- the site -------------------------------------------------------------------------------------


def local_folder(node: NodeFolder) -> Path | None:
    """Of the local site that the node belongs to; None: it stands alone."""
    folder = node.path.parent
    return folder if (folder / SITE_FILE).is_file() else None


def _where(node: NodeFolder) -> list[str]:
    folder = local_folder(node)
    if folder is not None:
        return ["--local", str(folder)]
    return ["--node-folder", str(node.path)]


async def _ship_now(order: Order) -> None:
    wish = {"wish": "now", "claim": False, "close": True}

    def ask(node: int) -> bool:
        said = ask_status(
            order.sockets(node), cluster=order.node.site.cluster, shard=0, kind=SHIPPER,
            wish=wish, timeout_s=ANSWER_S,
        )  # fmt: skip
        if said is not None and "error" in said:
            raise StorageError(f"the shipper did not begin: {said['error']}")
        return said is not None

    answers = await asyncio.gather(*(asyncio.to_thread(ask, node) for node in sorted(order.here)))
    if not any(answers):
        raise StorageError(NO_SHIPPER)


async def _ship_verify(order: Order) -> Outcome:
    said = await run_verb(["ship", "verify", *_where(order.node)])
    return Outcome(one_line(said.strip().splitlines()[-1]))


async def _retention_show(order: Order) -> Outcome:
    said = await run_verb(["retention", "show", *_where(order.node)])
    return Outcome("shown", text=said)


async def _retention_set(order: Order) -> Outcome:
    days = order.written["days"].strip()
    said = await run_verb(["retention", "set", days, *_where(order.node)])
    told = [line for line in said.splitlines() if line.startswith("retention: ")]
    return Outcome("; ".join(line.removeprefix("retention: ") for line in told), text=said)


async def _room_create(order: Order) -> Outcome:
    is_new = await create_room(order.node, order.written["room"])
    return Outcome("created" if is_new else "it exists")


def signed_token(order: Order) -> str:
    """ConfigurationError: why there can be none."""
    written = order.written
    return local_token(
        local_folder(order.node) or order.node.path,
        written["user"],
        parse_rights(tuple(written["rights"].split())),
        parse_duration(written["valid"]),
    )


async def _token(order: Order) -> Outcome:
    token = await asyncio.to_thread(signed_token, order)
    return Outcome("made, and shown once to whoever asked", text=token)


def _access(order: Order) -> Access:
    return local_access(local_folder(order.node) or order.node.path, OPERATOR, RIGHTS_OPERATOR)


def _closed(*, closed: bool) -> Perform:
    async def run(order: Order) -> Outcome:
        access = await asyncio.to_thread(_access, order)

        async def ask(client: Client, room_id: UUID) -> RoomState:
            return await client.close_room(room_id, closed=closed)

        state = await at_room(access, order.written["room"], ask)
        return Outcome("closed" if state.closed else "open")

    return run


async def _renamed(order: Order) -> Outcome:
    access = await asyncio.to_thread(_access, order)

    async def ask(client: Client, room_id: UUID) -> RoomState:
        return await client.rename_room(room_id, order.written["new_name"])

    state = await at_room(access, order.written["room"], ask)
    return Outcome(f"it is called {state.name}")


async def _limited(order: Order) -> Outcome:
    access = await asyncio.to_thread(_access, order)
    wanted = {right: whom_written(order.written[right]) for right in Limits._fields}

    async def ask(client: Client, room_id: UUID) -> RoomRightsAnswer:
        return await client.room_rights(room_id, **wanted)

    told = await at_room(access, order.written["room"], ask)
    may = {right: whom_words(getattr(told, right)) for right in Limits._fields}
    return Outcome("; ".join(f"{right}: {who}" for right, who in may.items()))


async def _member_add(order: Order) -> None:
    folder = local_folder(order.node)
    assert folder is not None  # checked
    await run_verb(["member", "add", "--local", str(folder)])


def _check_member_add(order: Order) -> None:
    if local_folder(order.node) is None:
        raise ConfigurationError(NO_NODE_ADDED)


async def _support(order: Order) -> Outcome:
    name = order.node.site.nodes[order.about.node].name
    folder = order.sockets(order.about.node).parent
    with tempfile.TemporaryDirectory(prefix="tigerchat-") as log_seq:
        out = Path(log_seq) / "bundle.tar.gz"
        await run_verb(["support", "--node-folder", str(folder), "--out", str(out)])
        data = await asyncio.to_thread(out.read_bytes)
    size = f"{len(data) / (1 << 20):.1f} MiB"
    safe = "".join(letter if letter.isalnum() or letter in "-_" else "_" for letter in name)
    return Outcome(f"{size}, to be taken once", file=data, file_name=f"tigerchat-{safe}.tar.gz")


async def _clock_correct(order: Order) -> Outcome:
    shard = order.node.site.shards[order.about.shard]
    log_seq = await correct_to(order.node, shard, clock.realtime_us())
    return Outcome(f"record {log_seq} brings log time back")


def _check_alarm(order: Order) -> None:
    alarm, subject = order.written["alarm"], order.written["subject"]
    if (alarm, subject) not in order.life.holds:
        raise ConfigurationError(not_held(alarm, subject))


async def _alarm_seen(order: Order) -> None:
    alarm, subject = order.written["alarm"], order.written["subject"]
    if not order.life.see(alarm, subject, order.who, clock.realtime_us() // 1000):
        raise StorageError(not_held(alarm, subject))


def _farm(*words: str, is_named: bool = True) -> Perform:
    async def run(order: Order) -> None:
        name = [order.node.site.nodes[order.about.node].name] if is_named else []
        folder = order.sockets(order.about.node).parent if not is_named else None
        where = _where(order.node) if folder is None else ["--node-folder", str(folder)]
        await run_verb(["farm", *words[:1], *name, *words[1:], *where])

    return run


async def _farm_placement(order: Order) -> Outcome:
    words = ["place", str(order.about.shard), *order.written["names"].split()]
    return Outcome(one_line((await run_verb(["farm", *words, *_where(order.node)])).strip()))


def _check_names(order: Order) -> None:
    for name in order.written["names"].split():
        member_named(order.node.site, name)


async def _farm_period(order: Order) -> Outcome:
    words = ["farm", "period", order.written["ms"].strip(), *_where(order.node)]
    return Outcome(one_line((await run_verb(words)).strip()))


PERFORM: dict[str, Perform] = {
    "drain": _kept(lambda keeper, about: keeper.drain()),
    "undrain": _kept(lambda keeper, about: keeper.undrain()),
    "stop": _kept(lambda keeper, about: keeper.stop(about.process)),
    "start": _kept(lambda keeper, about: keeper.start(about.process)),
    "scrub": _scrub,
    "step-down": _step_down,
    "promote": _promote,
    "retire": _retire,
    "remove": _remove,
    "recover": _recover,
    "farm-exclude": _farm("exclude"),
    "farm-lift": _farm("exclude", "--lift"),
    "farm-yield": _farm("yield", is_named=False),
    "farm-publish": _farm("publish", is_named=False),
    "farm-remove": _farm("remove"),
    "farm-admit": _farm("admit"),
    "farm-place": _farm_placement,
    "farm-period": _farm_period,
    "alarm-seen": _alarm_seen,
    "ship-now": _ship_now,
    "ship-verify": _ship_verify,
    "retention-show": _retention_show,
    "retention-set": _retention_set,
    "room-create": _room_create,
    "room-close": _closed(closed=True),
    "room-reopen": _closed(closed=False),
    "room-rename": _renamed,
    "room-rights": _limited,
    "token": _token,
    "member-add": _member_add,
    "support": _support,
    "clock-correct": _clock_correct,
}
assert PERFORM.keys() == BY_NAME.keys()


# What only the machine knows, asked before an act begins: the reason is that of its verb.
CHECKS: dict[str, Callable[[Order], object]] = {
    "alarm-seen": _check_alarm,
    "recover": _check_lost,
    "farm-place": _check_names,
    "room-close": _access,
    "room-reopen": _access,
    "room-rename": _access,
    "room-rights": _access,
    "token": signed_token,
    "member-add": _check_member_add,
}
assert CHECKS.keys() <= PERFORM.keys()


def check(name: str, order: Order) -> None:
    """ApplianceError says why it is refused."""
    if name in CHECKS:
        CHECKS[name](order)


async def perform(name: str, order: Order) -> Outcome:
    """ApplianceError says why it was not done, or not to its end."""
    return await PERFORM[name](order) or Outcome()
