"""Bugs to be found: rules of the federation core broken as somebody might who has not read why.

Each names the trap and the seeds that find it.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from appliance.cores.federation import opening, receiving, sending
from appliance.cores.federation.state import ChannelState
from appliance.cores.federation.wanted import Wanted
from appliance.formats.causal import rows

Sow = Callable[[pytest.MonkeyPatch], None]


class Plant(NamedTuple):
    trap: str
    sow: Sow


PLANTS: dict[str, Plant] = {}


def plant(trap: str) -> Callable[[Sow], Sow]:
    def enter(sow: Sow) -> Sow:
        PLANTS[sow.__name__] = Plant(trap, sow)
        return sow

    return enter


@plant("a dependency is met by a message that merely waits")
def waiting_meets(patch: pytest.MonkeyPatch) -> None:
    whole = ChannelState.is_met
    patch.setattr(
        ChannelState,
        "is_met",
        lambda self, message_id: message_id in self.incoming.waiting or whole(self, message_id),
    )


@plant("a filter proves absence: what it lacks was never received")
def filter_proves_absence(patch: pytest.MonkeyPatch) -> None:
    whole = ChannelState.is_logged
    patch.setattr(
        ChannelState,
        "is_logged",
        lambda self, message_id: message_id in self.filter and whole(self, message_id),
    )


@plant("a missing message is asked for once only")
def asked_once(patch: pytest.MonkeyPatch) -> None:
    def never(self: Wanted, message_id: str, now_ms: int) -> None:
        row = self.rows[message_id]
        row.request_at = rows.NEVER
        self.dirty[message_id] = None

    patch.setattr(Wanted, "_arm_again", never)
    patch.setattr(Wanted, "put_off", never)
    patch.setattr(Wanted, "all_due", lambda self, now_ms: None)


@plant("the clock is not raised by what is delivered")
def clock_stays(patch: pytest.MonkeyPatch) -> None:
    whole = receiving.commit

    def commit(state: ChannelState, message_id: str, *others: Any, **named: Any) -> bool:
        clock = state.clock
        done = whole(state, message_id, *others, **named)
        state.clock = clock
        return done

    patch.setattr(receiving, "commit", commit)


@plant("a filter with all bits set counts as evidence")
def saturated_counts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(receiving.bloom, "false_positive_rate", lambda data, geometry: 0.0)


@plant("after a takeover local messages get new ids")
def new_id_after_takeover(patch: pytest.MonkeyPatch) -> None:
    whole = opening._replay_own

    def replay(state: ChannelState, record: opening.LogRecord, now_ms: int) -> None:
        whole(state, opening.LogRecord(now_ms, record.content), now_ms)

    patch.setattr(opening, "_replay_own", replay)


@plant("a sync message names the newest entries alone")
def newest_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sending, "_name", lambda state, message_id, history, named: None)


@plant("a message is in the log before the site has committed it")
def logged_before_commit(patch: pytest.MonkeyPatch) -> None:
    whole = receiving.make_ready

    def make_ready(state: ChannelState, found: list[Any]) -> None:
        whole(state, found)
        for message_id in [*state.incoming.ready]:
            receiving.commit(state, message_id, state.clock, now_ms=state.clock)

    patch.setattr(receiving, "make_ready", make_ready)


@plant("what is repeated for others is encoded anew, with today's filter")
def repeated_with_filter(patch: pytest.MonkeyPatch) -> None:
    whole = sending.answer_repairs

    def answer(state: ChannelState, now_ms: int) -> None:
        before = len(state.effects)
        whole(state, now_ms)
        for location in range(before, len(state.effects)):
            effect = state.effects[location]
            if isinstance(effect, sending.Broadcast):
                again = sending._with_filter(state, sending.sds.decode(effect.data))
                state.effects[location] = sending.Broadcast(again, effect.kind, True)

    patch.setattr(sending, "answer_repairs", answer)
