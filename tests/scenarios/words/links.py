"""What is lost, late, doubled or spoilt between machines."""

from dataclasses import replace

from appliance.formats import envelope as env
from appliance.formats.envelope import Message
from appliance.simulation.schedule import TICK_US
from tests.scenarios.frames import Frames
from tests.scenarios.sights import COMMANDS
from tests.scenarios.stage import Stage, StoryFailed
from tests.scenarios.story import Vocabulary

words = Vocabulary()


@words.line("{who} is isolated", "{who} are isolated")
def isolate(stage: Stage, who: str) -> None:
    nodes = stage.nodes(who)
    stage.lose(f"{who} isolated", lambda s, t, header: (s in nodes) != (t in nodes))


@words.line("{who} is cut off from {whom}", "{who} are cut off from {whom}")
def cut(stage: Stage, who: str, whom: str) -> None:
    near, far = stage.nodes(who), stage.nodes(whom)
    stage.lose(
        f"{who} cut off", lambda s, t, header: (s in near and t in far) or (t in near and s in far)
    )


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
        stage.wire.options, delay_us_min=least, delay_us_mean=(most - least) // 3
    )


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
        geometry=stage.geometry, cluster=stage.cluster.cluster, shard=0, count=stage.member_count
    )


@words.line("frames from {who} to {whom} {how}")
def spoilt(stage: Stage, who: str, whom: str, how: str) -> None:
    """How: `signed_by_stranger`, `of_another_cluster`, `twice`, or `whole` again."""
    wire = stage.wire.frames
    assert wire is not None
    words_of = {
        "signed_by_stranger": "stranger",
        "of_another_cluster": "cluster",
        "twice": "twice",
        "whole": "",
    }
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
    found = [source.journal.at(op) for op in reversed(stage.span(ops))]
    body = b"".join(header.raw for header in found if header is not None)
    message = Message(source.make(env.HEADERS, view=source.view, body=body), body, source.index)
    for target in stage.nodes(whom):
        stage.cluster.deliver(target, source.index, message)
