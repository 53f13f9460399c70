"""What clients ask for."""

from collections.abc import Iterator
from typing import Any

from appliance.formats import envelope as env
from appliance.formats import event, record
from appliance.simulation.clock import EPOCH_US
from tests.scenarios.stage import WAIT_TICKS, Stage, StoryFailed
from tests.scenarios.story import Vocabulary

words = Vocabulary()


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
    for speaker, header, body in _newest_requests(stage, who):
        for target in stage.nodes(whom):
            stage.from_client(speaker, target, header, body)


@words.line("{who} asks records {ops}")
def asks_records(stage: Stage, who: str, ops: str) -> None:
    """Records of its device by number, asked before or not."""
    for speaker in stage.talkers(who):
        wanted = stage.span(ops)
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
    for speaker, header, body in _newest_requests(stage, who):
        _forge(stage, speaker, whom, header.aux, bytes(body[:128]) + _next_record(speaker))


@words.line("{who} sends its next request with a wrong parent to {whom}")
def wrong_parent(stage: Stage, who: str, whom: str) -> None:
    for speaker, header, body in _newest_requests(stage, who):
        block = bytes(body[:32]) + b"?" * 16 + bytes(body[48:128])
        _forge(stage, speaker, whom, header.aux + 1, block + _next_record(speaker))


@words.line("{who} sends a request of an older session to {whom}")
def older_session(stage: Stage, who: str, whom: str) -> None:
    for speaker, header, body in _newest_requests(stage, who):
        session = speaker.session.core.session - 1
        block = bytes(body[:16]) + session.to_bytes(8, "little") + bytes(body[24:])
        _forge(stage, speaker, whom, header.aux + 1, block)


def _newest_requests(stage: Stage, who: str) -> Iterator[tuple[Any, env.Header, Any]]:
    """Who speaks, and header and body of what each asked last."""
    for speaker in stage.talkers(who):
        assert speaker.request is not None
        yield speaker, *speaker.request


def _next_record(speaker: Any) -> bytes:
    """The record that its device has not asked for yet."""
    return bytes(speaker.device.record(speaker.device.asked + 1))


def _forge(stage: Stage, speaker: Any, whom: str, number: int, body: bytes) -> None:
    """A request that the client's own core would not send."""
    header = env.make(
        env.REQUEST,
        cluster=stage.cluster.cluster,
        shard=0,
        epoch=0,
        operation=env.OPERATION_APPEND,
        view=speaker.session.core.view,
        aux=number,
        body=body,
    )
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
        event.Shipped(event.SHIP_MANIFEST, 0, done + 1, *range_, 0, b"#" * 32),
    ]
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
    while stage.checkers.log.op < target:
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
