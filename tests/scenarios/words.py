"""What a line of a story may say, besides what it may see (`sights.py`).

The first lines of a story may set the stage: `5 replicas`, `4 clients`. Everything after them
happens on a group that has started, with its clients registered and their room made.
"""

from dataclasses import replace
from typing import Any

from appliance.base.limits import SECTOR_SIZE
from appliance.formats import envelope as env
from appliance.formats import event, record
from appliance.formats import segment as seg
from appliance.formats import superblock as sb
from appliance.formats.envelope import Message
from appliance.formats.geometry import (
    HEADER_SIZE,
    RECORD_SIZE,
    SMALL,
    SUPERBLOCK_COPY_SIZE,
    SUPERBLOCK_COPY_STRIDE,
    TABLES,
)
from appliance.formats.membership import (
    KIND_ADD,
    MemberChange,
    Reconfigure,
    encode_change,
    encode_reconfigure,
)
from appliance.simulation.atlas import ZONES
from appliance.simulation.clock import EPOCH_US
from appliance.simulation.schedule import TICK_US
from tests.scenarios.frames import Frames
from tests.scenarios.sights import holds
from tests.scenarios.stage import Stage, StoryFailed
from tests.scenarios.story import Vocabulary

COMMANDS = {name: code for code, name in env.COMMAND_NAMES.items()}
LARGE = replace(
    SMALL, slot_count=20, checkpoint_ops=8, message_size_max=1 << 20, records_max=468,
    reply_size_max=32 << 10, segment_records=1_000)
WAIT_TICKS = 600  # for anything that a story waits for, unless it says otherwise

setting = Vocabulary()
words = Vocabulary()


@setting.line("{n} replicas", "{n} replica")
def replicas(stage: dict[str, Any], n: str) -> None:
    stage["replica_count"] = int(n)


@setting.line("{n} clients", "{n} client")
def clients(stage: dict[str, Any], n: str) -> None:
    stage["clients"] = int(n)


@setting.line("{n} standbys", "{n} standby")
def standbys(stage: dict[str, Any], n: str) -> None:
    stage["standby_count"] = int(n)


@setting.line("{n} newcomer", "{n} newcomers")
def newcomers(stage: dict[str, Any], n: str) -> None:
    """Machines that are called like standbys and are no members yet."""
    stage["standby_count"] = stage["newcomers"] = int(n)


@setting.line("{n} segments")
def segments(stage: dict[str, Any], n: str) -> None:
    """Extents on each disk, instead of plenty."""
    stage["segments_max"] = int(n)


@setting.line("messages of a megabyte")
def large(stage: dict[str, Any]) -> None:
    """Requests as large as in production, in a ring of few slots."""
    stage["geometry"] = LARGE


@setting.line("a pause before clients register")
def unhurried(stage: dict[str, Any]) -> None:
    """No client yet."""
    stage["clients"] = 0


# --- time and expectation -----------------------------------------------------------------------


@words.line("run {n} ticks", "run {n} tick")
def run(stage: Stage, n: str) -> None:
    stage.run_us(stage.number(n) * TICK_US)


@words.line("run {n} ticks while {rest}")
def run_while(stage: Stage, n: str, rest: str) -> None:
    for _ in range(stage.number(n) * 4):
        stage.run_us(TICK_US // 4)
        if not holds(stage, rest):
            raise StoryFailed(f"it did not last: {rest}")


@words.line("run until {rest} within {n} ticks")
def run_until_soon(stage: Stage, rest: str, n: str) -> None:
    stage.until(lambda: _by_now(stage, rest), rest, stage.number(n))


@words.line("run until {rest}")
def run_until(stage: Stage, rest: str) -> None:
    stage.until(lambda: _by_now(stage, rest), rest, WAIT_TICKS)


def _by_now(stage: Stage, rest: str) -> bool:
    """Of a process that does not run nothing holds yet."""
    try:
        return holds(stage, rest)
    except StoryFailed:
        return False


@words.line("expect {rest}")
def expect(stage: Stage, rest: str) -> None:
    if not holds(stage, rest):
        raise StoryFailed(f"expected: {rest}")


@words.line("note {n} as {name}")
def note_number(stage: Stage, n: str, name: str) -> None:
    stage.notes[name] = stage.number(n)


@words.line("note {who} {what} as {name}")
def note(stage: Stage, who: str, what: str, name: str) -> None:
    stage.notes[name] = getattr(stage.replica(stage.nodes(who)[0]), what)


@words.line("watch")
def watch(stage: Stage) -> None:
    """From now on `sent`, `wrote` and `mark` mean: since here."""
    stage.wrote.clear()
    stage.sent_from = len(stage.wire.sent_log)
    stage.mark_from = dict(stage.cluster.marks)


# --- clients ------------------------------------------------------------------------------------


@words.line("{who} asks", "{who} ask")
def asks(stage: Stage, who: str) -> None:
    """One record each; nobody waits for the answer."""
    for speaker in stage.talkers(who):
        stage.speak(speaker, 1)


@words.line("{who} asks {n} records", "{who} ask {n} records")
def asks_many(stage: Stage, who: str, n: str) -> None:
    for speaker in stage.talkers(who):
        stage.speak(speaker, stage.number(n))


@words.line("{who} asks the same again")
def asks_again(stage: Stage, who: str) -> None:
    """The records of the newest request, in a new one."""
    for speaker in stage.talkers(who):
        stage.until(lambda s=speaker: s.session.core.ready, "a session", WAIT_TICKS)
        stage.ask(speaker, speaker.last)


@words.line("{who} sends its newest request again to {whom}")
def resend(stage: Stage, who: str, whom: str) -> None:
    """The same bytes, to each of these replicas."""
    for speaker in stage.talkers(who):
        assert speaker.request is not None
        for target in stage.nodes(whom):
            stage.from_client(speaker, target, *speaker.request)


@words.line("{who} asks records {ops}")
def asks_records(stage: Stage, who: str, ops: str) -> None:
    """Records of its device by number, asked before or not."""
    for speaker in stage.talkers(who):
        wanted = spread(stage, ops)
        speaker.device.asked = max(speaker.device.asked, wanted[-1])
        stage.ask(speaker, [(speaker.device, number) for number in wanted])


@words.line("{who} asks as {n} new devices")
def asks_as_devices(stage: Stage, who: str, n: str) -> None:
    """One record of each, each in a request of its own."""
    for speaker in stage.talkers(who):
        for _ in range(int(n)):
            stage.until(lambda s=speaker: s.session.core.ready, "an answer", WAIT_TICKS)
            speaker.more.append(stage.device())
            stage.ask(speaker, [(speaker.more[-1], 1)])
            stage.until(lambda s=speaker: not s.in_flight, "an answer", WAIT_TICKS)


@words.line("{who} asks again as its device {n}")
def asks_as_device(stage: Stage, who: str, n: str) -> None:
    for speaker in stage.talkers(who):
        stage.ask(speaker, [(speaker.more[int(n) - 1], 1)])


@words.line("{who} sends another request under the same number to {whom}")
def collide(stage: Stage, who: str, whom: str) -> None:
    for speaker in stage.talkers(who):
        assert speaker.request is not None
        header, body = speaker.request
        other = speaker.device.record(speaker.device.asked + 1)
        _forge(stage, speaker, whom, header.aux, bytes(body[:128]) + other)


@words.line("{who} sends its next request with a wrong parent to {whom}")
def wrong_parent(stage: Stage, who: str, whom: str) -> None:
    for speaker in stage.talkers(who):
        assert speaker.request is not None
        header, body = speaker.request
        other = speaker.device.record(speaker.device.asked + 1)
        block = bytes(body[:32]) + b"?" * 16 + bytes(body[48:128])
        _forge(stage, speaker, whom, header.aux + 1, block + other)


@words.line("{who} sends a request of an older session to {whom}")
def older_session(stage: Stage, who: str, whom: str) -> None:
    for speaker in stage.talkers(who):
        assert speaker.request is not None
        header, body = speaker.request
        session = speaker.session.core.session - 1
        block = bytes(body[:16]) + session.to_bytes(8, "little") + bytes(body[24:])
        _forge(stage, speaker, whom, header.aux + 1, block)


def _forge(stage: Stage, speaker: Any, whom: str, number: int, body: bytes) -> None:
    """A request that the client's own core would not send."""
    header = env.make(
        env.REQUEST, cluster=stage.cluster.cluster, shard=0, epoch=0,
        operation=env.OPERATION_APPEND, view=speaker.session.core.view, aux=number, body=body)
    for target in stage.nodes(whom):
        stage.from_client(speaker, target, header, body)


@words.line("records up to {n} are shipped and segments below {op} are freed")
def retain(stage: Stage, n: str, op: str) -> None:
    """As the shipper says it, in records of the shard's own room, by C1."""
    first, last = stage.notes.get("shipped", 0) + 1, stage.number(n)
    done = stage.notes.get("manifests", 0)
    start_us, period_us = EPOCH_US + (done - 10) * 1_000_000, 1_000_000
    range_ = (done, start_us, period_us, first, last)
    said = [
        event.Shipped(event.SHIP_CLAIM, 0, done + 1),
        event.Shipped(event.SHIP_ANNOUNCE, 0, done + 1, *range_, last + 1),
        event.Shipped(event.SHIP_MANIFEST, 0, done + 1, *range_, 0, b"#" * 32)]
    bodies = [(record.KIND_SHIPPED, event.encode_shipped(one)) for one in said]
    speaker = stage.speakers[0]
    for kind, body in (*bodies, (record.KIND_RETAIN, event.encode_retain(stage.number(op)))):
        stage.until(lambda: speaker.session.core.ready, "an answer", WAIT_TICKS)
        stage.chronicle.said.append((kind, body))
        stage.ask(speaker, [(stage.chronicle, len(stage.chronicle.said))])
        stage.until(lambda: not speaker.in_flight, "an answer", WAIT_TICKS)
        if speaker.codes != ["ok"]:
            raise StoryFailed(f"the record was not taken: {speaker.codes}")
    stage.notes |= {"shipped": last, "manifests": done + 1}


@words.line("write until op {op}")
def write_until(stage: Stage, op: str) -> None:
    """C1 asks one record after the other until `op` is committed, each answered."""
    speaker, target = stage.speakers[0], stage.number(op)
    while stage.judge.log.op < target:
        _write(stage, speaker, 1)


@words.line("write {n} requests", "write {n} request")
def write(stage: Stage, n: str) -> None:
    for _ in range(stage.number(n)):
        _write(stage, stage.speakers[0], 1)


@words.line("write {n} requests of {count} records", "write {n} request of {count} records")
def write_large(stage: Stage, n: str, count: str) -> None:
    for _ in range(stage.number(n)):
        _write(stage, stage.speakers[0], int(count))


def _write(stage: Stage, speaker: Any, count: int) -> None:
    stage.until(lambda: speaker.session.core.ready, "an answer", WAIT_TICKS)
    stage.speak(speaker, count)
    stage.until(lambda: not speaker.in_flight, "an answer", WAIT_TICKS)
    if not set(speaker.codes) <= {"ok", "duplicate"}:
        raise StoryFailed(f"C{speaker.number} was told {speaker.codes}")


@words.line("{n} clients join", "{n} client joins")
def join(stage: Stage, n: str) -> None:
    for _ in range(int(n)):
        speaker = stage.join()
        stage.until(lambda s=speaker: s.session.core.ready, "a session", WAIT_TICKS)


# --- members ------------------------------------------------------------------------------------


@words.line("{who} asks that {whom} change places")
def swap(stage: Stage, who: str, whom: str) -> None:
    """An order of the members for the next epoch, in which two of them are exchanged."""
    newest = max(
        (stage.replica(i) for i in stage.running()), key=lambda r: (r.epoch, r.commit_min))
    order = list(newest.members)
    one, other = (order.index(stage.cluster.members[i]) for i in stage.nodes(whom))
    order[one], order[other] = order[other], order[one]
    body = encode_reconfigure(Reconfigure(newest.epoch + 1, newest.replica_count, tuple(order)))
    for speaker in stage.talkers(who):
        stage.notes["order"] = body
        stage.change(speaker, env.OPERATION_RECONFIGURE, body)


@words.line("{who} asks for the last order again")
def swap_again(stage: Stage, who: str) -> None:
    for speaker in stage.talkers(who):
        stage.change(speaker, env.OPERATION_RECONFIGURE, stage.notes["order"])


@words.line("{who} asks that {whom} joins")
def add(stage: Stage, who: str, whom: str) -> None:
    for index in stage.nodes(whom):
        replica_id = stage.cluster.members[index]
        body = encode_change(MemberChange(0, KIND_ADD, replica_id, address="somewhere:7400"))
        stage.change(stage.talkers(who)[0], env.OPERATION_MEMBER_CHANGE, body)


@words.line("{who} is formatted for the group")
def format_member(stage: Stage, who: str) -> None:
    """As the primary knows it now."""
    primary = stage.primary()
    assert primary is not None
    for index in stage.nodes(who):
        stage.format(index, stage.replica(primary).configuration, view=0)


# --- processes ----------------------------------------------------------------------------------


@words.line("{who} crashes", "{who} crash")
def crash(stage: Stage, who: str) -> None:
    """Of what is on its way to the disk nothing arrives."""
    for index in stage.nodes(who):
        stage.crash(index, lambda sectors: range(0))


@words.line("{who} crashes, writes torn", "{who} crash, writes torn")
def crash_torn(stage: Stage, who: str) -> None:
    """Of each write in flight all but the last sector arrives."""
    for index in stage.nodes(who):
        stage.crash(index, lambda sectors: range(sectors - 1))


@words.line("{who} crashes, writes done", "{who} crash, writes done")
def crash_done(stage: Stage, who: str) -> None:
    """All that was in flight arrives, and nobody is told."""
    for index in stage.nodes(who):
        stage.crash(index, lambda sectors: range(sectors))


@words.line("{who} will crash after sector {n} of a superblock")
def crash_in_superblock(stage: Stage, who: str, n: str) -> None:
    for index in stage.nodes(who):
        stage.superblock_sectors[index] = stage.number(n)


@words.line("{who} starts", "{who} start")
def start(stage: Stage, who: str) -> None:
    for index in stage.nodes(who):
        stage.start(index)


@words.line("whoever is down starts")
def start_rest(stage: Stage) -> None:
    for machine in stage.cluster.machines:
        if machine.replica is None:
            stage.start(machine.index)


@words.line("{who} pauses", "{who} pause")
def pause(stage: Stage, who: str) -> None:
    for index in stage.nodes(who):
        stage.cluster.pause(index)


@words.line("{who} resumes", "{who} resume")
def resume(stage: Stage, who: str) -> None:
    for index in stage.nodes(who):
        stage.cluster.resume(index)


@words.line("{who} clock goes {n} seconds {way}")
def clock_step(stage: Stage, who: str, n: str, way: str) -> None:
    """An administrator sets the wall clock, `forward` or `back`."""
    for machine in stage.machines(who):
        machine.clock.step({"forward": 1, "back": -1}[way] * stage.number(n) * 1_000_000)


# --- links --------------------------------------------------------------------------------------


@words.line("{who} is isolated", "{who} are isolated")
def isolate(stage: Stage, who: str) -> None:
    nodes = stage.nodes(who)
    stage.lose(f"{who} isolated", lambda s, t, header: (s in nodes) != (t in nodes))


@words.line("{who} is cut off from {whom}", "{who} are cut off from {whom}")
def cut(stage: Stage, who: str, whom: str) -> None:
    near, far = stage.nodes(who), stage.nodes(whom)
    stage.lose(
        f"{who} cut off",
        lambda s, t, header: (s in near and t in far) or (t in near and s in far))


@words.line("{who} hears nothing from {whom}", "{who} hear nothing from {whom}")
def deaf_to(stage: Stage, who: str, whom: str) -> None:
    near, far = stage.nodes(who), stage.nodes(whom)
    stage.lose(f"{who} deaf", lambda s, t, header: s in far and t in near and s != t)


@words.line("{who} hears nothing", "{who} hear nothing")
def deaf(stage: Stage, who: str) -> None:
    nodes = stage.nodes(who)
    stage.lose(f"{who} deaf", lambda s, t, header: t in nodes)


@words.line("{who} is heard by nobody", "{who} are heard by nobody")
def mute(stage: Stage, who: str) -> None:
    nodes = stage.nodes(who)
    stage.lose(f"{who} mute", lambda s, t, header: s in nodes)


@words.line("lose {command} from {who} to {whom}")
def lose_on_link(stage: Stage, command: str, who: str, whom: str) -> None:
    code, near, far = COMMANDS[command], stage.nodes(who), stage.nodes(whom)
    stage.lose(command, lambda s, t, h: h.command == code and s in near and t in far)


@words.line("lose {command} from {who}")
def lose_from(stage: Stage, command: str, who: str) -> None:
    code, near = COMMANDS[command], stage.nodes(who)
    stage.lose(command, lambda s, t, h: h.command == code and s in near)


@words.line("lose {command} to {who}")
def lose_to(stage: Stage, command: str, who: str) -> None:
    code, far = COMMANDS[command], stage.nodes(who)
    stage.lose(command, lambda s, t, h: h.command == code and t in far)


@words.line("lose {command} of op {op}")
def lose_op(stage: Stage, command: str, op: str) -> None:
    code, number = COMMANDS[command], stage.number(op)
    stage.lose(command, lambda s, t, h: h.command == code and h.op == number)


@words.line("lose {command}")
def lose(stage: Stage, command: str) -> None:
    code = COMMANDS[command]
    stage.lose(command, lambda s, t, h: h.command == code)


@words.line("{command} arrives again")
def no_longer_lost(stage: Stage, command: str) -> None:
    stage.wire.rules = [item for item in stage.wire.rules if item[0] != command]


@words.line("{who} hears again")
def hears_again(stage: Stage, who: str) -> None:
    stage.wire.rules = [item for item in stage.wire.rules if item[0] != f"{who} deaf"]


@words.line("heal")
def heal(stage: Stage) -> None:
    """All links are whole again."""
    stage.wire.rules = []


@words.line("every message comes again {n} ticks later")
def come_again(stage: Stage, n: str) -> None:
    stage.wire.again_us = stage.number(n) * TICK_US


@words.line("links take {n} to {value} milliseconds")
def slow_links(stage: Stage, n: str, value: str) -> None:
    """A delay of its own for each message, so that they overtake each other."""
    least, most = int(n) * 1000, int(value) * 1000
    stage.wire.options = replace(
        stage.wire.options, delay_us_min=least, delay_us_mean=(most - least) // 3)


@words.line("the last {command} from {who} to {whom} comes again")
def replay(stage: Stage, command: str, who: str, whom: str) -> None:
    code, source, target = COMMANDS[command], stage.nodes(who)[0], stage.nodes(whom)[0]
    for s, t, message in reversed(stage.wire.sent_log):
        if (s, t, message.header.command) == (source, target, code):
            stage.cluster.deliver(target, source, message)
            return
    raise StoryFailed(f"{who} never sent a {command} to {whom}")


@words.line("messages travel as frames")
def frames(stage: Stage) -> None:
    """Between replicas, from now on: signed, and checked as the product's links do."""
    stage.wire.frames = Frames(
        geometry=stage.geometry, cluster=stage.cluster.cluster, shard=0,
        count=stage.member_count)


@words.line("frames from {who} to {whom} {how}")
def spoilt(stage: Stage, who: str, whom: str, how: str) -> None:
    """How: `signed_by_stranger`, `of_another_cluster`, `twice`, or `whole` again."""
    wire = stage.wire.frames
    assert wire is not None
    words_of = {
        "signed_by_stranger": "stranger", "of_another_cluster": "cluster", "twice": "twice",
        "whole": ""}
    for source in stage.nodes(who):
        for target in stage.nodes(whom):
            wire.spoilt[source, target] = words_of[how]


@words.line("what {who} sends takes {n} ticks longer")
def late(stage: Stage, who: str, n: str) -> None:
    for node in stage.nodes(who):
        stage.wire.late[node] = stage.number(n) * TICK_US


@words.line("what {who} sends is quick again")
def not_late(stage: Stage, who: str) -> None:
    for node in stage.nodes(who):
        stage.wire.late.pop(node, None)


@words.line("{who} tells {whom} the headers of {ops}")
def tell_headers(stage: Stage, who: str, whom: str, ops: str) -> None:
    """A `headers` message that nobody asked for."""
    source = stage.replica(stage.nodes(who)[0])
    found = [source.journal.at(op) for op in reversed(spread(stage, ops))]
    body = b"".join(header.raw for header in found if header is not None)
    message = Message(source.make(env.HEADERS, view=source.view, body=body), body, source.index)
    for target in stage.nodes(whom):
        stage.cluster.deliver(target, source.index, message)


@words.line("{who} routes by {routing}")
def route(stage: Stage, who: str, routing: str) -> None:
    """`star` or `chain`, as an operator would choose."""
    for index in stage.nodes(who):
        found = stage.replica(index).route
        found.chain_wanted = {"star": False, "chain": True}[routing]
        found.reset(stage.replica(index).tick)


# --- disks --------------------------------------------------------------------------------------


def spread(stage: Stage, ops: str) -> range:
    """`7`, or `5..9`."""
    first, _, last = ops.partition("..")
    return range(stage.number(first), stage.number(last or first) + 1)


@words.line("{who} {zone} writes take {n} ticks")
def slow_zone(stage: Stage, who: str, zone: str, n: str) -> None:
    """Zones: superblock, witness, prepare, reply, checkpoint, segment."""
    for index in stage.nodes(who):
        stage.write_ticks[index, ZONES.index(zone)] = stage.number(n)


@words.line("{who} writes are quick again")
def quick(stage: Stage, who: str) -> None:
    for index in stage.nodes(who):
        for zone in range(len(ZONES)):
            stage.write_ticks.pop((index, zone), None)


@words.line("{who} prepare {ops} rots", "{who} prepares {ops} rot")
def rot_prepare(stage: Stage, who: str, ops: str) -> None:
    """A bit of the body flips; of the root, which has none, a bit of the header."""
    for index in stage.nodes(who):
        for op in spread(stage, ops):
            stage.rot(index, stage.prepare_at(op) + (HEADER_SIZE + 2 if op else 50))


@words.line("{who} witness {ops} rots", "{who} witnesses {ops} rot")
def rot_witness(stage: Stage, who: str, ops: str) -> None:
    for index in stage.nodes(who):
        for op in spread(stage, ops):
            stage.rot(index, stage.witness_at(op) + 50)


@words.line("{who} slot {op} rots")
def rot_slot(stage: Stage, who: str, op: str) -> None:
    """Both rings, whatever they hold."""
    for index in stage.nodes(who):
        stage.rot(index, stage.witness_at(stage.number(op)) + 50)
        stage.rot(index, stage.prepare_at(stage.number(op)) + 50)


@words.line("{who} padding of {ring} {op} rots")
def rot_padding(stage: Stage, who: str, ring: str, op: str) -> None:
    at = {"prepare": stage.prepare_at, "witness": stage.witness_at}[ring](stage.number(op))
    for machine in stage.machines(who):
        end = HEADER_SIZE
        if ring == "prepare":
            found = env.decode_stored(machine.disk.peek(at, HEADER_SIZE))
            assert found is not None
            end += found.body_size
        stage.rot(machine.index, at - (-end // SECTOR_SIZE) * SECTOR_SIZE - 1)


@words.line("{who} {ring} {op} lies at {place}")
def misdirected(stage: Stage, who: str, ring: str, op: str, place: str) -> None:
    """It was written to another op's place; its own still holds what format put there."""
    geometry = stage.geometry
    at, size = {
        "prepare": (stage.prepare_at, geometry.message_size_max),
        "witness": (stage.witness_at, SECTOR_SIZE)}[ring]
    home, away = stage.number(op), stage.number(place)
    for machine in stage.machines(who):
        data = machine.disk.peek(at(home), size)
        stage.damaged(machine.index, at(away), data)
        empty = env.reserved(home % geometry.slot_count, stage.cluster.cluster, 0)
        stage.damaged(machine.index, at(home), empty.raw.ljust(size, b"\0"))


@words.line("{who} superblock copies {numbers} rot")
def rot_superblock(stage: Stage, who: str, numbers: str) -> None:
    for index in stage.nodes(who):
        for copy in numbers.split():
            stage.rot(index, int(copy) * SUPERBLOCK_COPY_STRIDE + 200)


@words.line("{who} superblock copies {numbers} name view {n}")
def forge_superblock(stage: Stage, who: str, numbers: str, n: str) -> None:
    """Valid copies of the same sequence that say something else."""
    for machine in stage.machines(who):
        decoded = sb.decode(machine.disk.peek(0, SUPERBLOCK_COPY_SIZE))
        assert decoded is not None
        block = replace(decoded[0], view=stage.number(n), log_view=stage.number(n))
        for copy in map(int, numbers.split()):
            stage.damaged(
                machine.index, copy * SUPERBLOCK_COPY_STRIDE, sb.encode(block, copy))


@words.line("{who} reply of {whom} rots")
def rot_reply(stage: Stage, who: str, whom: str) -> None:
    client = stage.talkers(whom)[0].session.client_id
    for machine in stage.machines(who):
        entry = stage.replica(machine.index).sessions.get(client)
        assert entry is not None
        at = stage.geometry.replies_offset + entry.row * stage.geometry.reply_size_max
        stage.rot(machine.index, at + HEADER_SIZE + 2)


@words.line("{who} manifest of checkpoint {op} rots")
def rot_manifest(stage: Stage, who: str, op: str) -> None:
    for index in stage.nodes(who):
        stage.rot(index, stage.zone_at(stage.number(op)) + 8)


@words.line("{who} table {name} of checkpoint {op} rots")
def rot_table(stage: Stage, who: str, name: str, op: str) -> None:
    assert name in TABLES
    for index in stage.nodes(who):
        stage.rot(index, stage.zone_at(stage.number(op)) + stage.geometry.table_offset(name) + 1)


@words.line("{who} record {n} rots")
def rot_record(stage: Stage, who: str, n: str) -> None:
    geometry, number = stage.geometry, stage.number(n)
    extent = seg.number_of(geometry, number) % stage.options.segments_max
    for index in stage.nodes(who):
        stage.rot(index, geometry.data_size + extent * geometry.extent_size
                  + seg.slot_of(geometry, number) * RECORD_SIZE + 90)


@words.line("{who} disk is full")
def full(stage: Stage, who: str) -> None:
    """What is not there yet cannot be made: no further extent."""
    for machine in stage.machines(who):
        machine.disk.full = machine.disk.faults = True


@words.line("{who} disk has room again")
def room(stage: Stage, who: str) -> None:
    for machine in stage.machines(who):
        machine.disk.full = machine.disk.faults = False


@words.line("{who} disk is lost")
def lost(stage: Stage, who: str) -> None:
    """A new one is there, with nothing on it; nobody formats it."""
    for machine in stage.machines(who):
        machine.disk.lose()


@words.line("an operator replaces the disk of {who}")
def replaced(stage: Stage, who: str) -> None:
    """As `docs/operations.md` says: operations first, then a new volume, then a start."""
    stage.replacement.begin(stage.nodes(who)[0])


@words.line("{who} disk is mended")
def mended(stage: Stage, who: str) -> None:
    for index in stage.nodes(who):
        stage.mended(index)
