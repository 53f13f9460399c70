"""Members of one or several farms behind one listener, until they are told to stop."""

import asyncio
import contextlib
import logging
import signal
import time
from collections.abc import Callable, Sequence

from appliance.base.errors import ApplianceError
from appliance.cores.raft.login import Doorway, path_of
from appliance.drivers.network.farm_stream import listen, server_tls
from appliance.roles.farm.guests import Guests, read_invitations
from appliance.roles.farm.listener import Listener, Taker
from appliance.roles.farm.member import FarmMember
from appliance.roles.farm.settings import RAW, TLS, FarmSettings

KNOWN_S = 0.1  # how old what the door knows may be when somebody comes


async def serve(farms: Sequence[FarmSettings], log: logging.Logger) -> int:
    """One member for each farm, until SIGTERM; as `host`."""
    members = {settings.farm: FarmMember(settings, log) for settings in farms}
    guests = [Guests(member) for member in members.values() if member.settings.seal]
    assert len(members) == len(farms)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, _stop, members)
    where = (", ".join(members), *farms[0].listen)
    asking = [loop.create_task(guest.ask_to_be_added()) for guest in guests if guest.settings.join]
    try:
        await host(members, log, lambda: log.info("serving %s on %s:%d", *where))
    finally:
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
    return 0


async def host(
    members: dict[str, FarmMember], log: logging.Logger, on_listening: Callable[[], None]
) -> None:
    """Until all members have been stopped; they share listener, carrier and certificate of the
    first one, and nothing else.

    FarmMemberOut when one is taken out of its farm; FarmBroken or StorageError when one cannot go
    on.
    """
    first = next(iter(members.values())).settings
    doorway = Doorway({path_of(name): member.gate() for name, member in members.items()})
    takers: dict[str, Taker] = dict(members)
    raw = first.farm if first.carrier == RAW else ""
    listener = Listener(doorway, takers, raw=raw, renew=renewal(doorway, members))
    tls = None
    if first.carrier == TLS:
        assert first.certificate is not None
        assert first.key is not None
        tls = server_tls(first.certificate, first.key)
    server = await listen(*first.listen, tls, listener.on_stream)
    on_listening()
    try:
        async with asyncio.TaskGroup() as group:
            for member in members.values():
                group.create_task(member.run())
    except* ApplianceError as errors:
        raise _first(errors) from None
    finally:
        server.close()
        await listener.close()
        for name, member in members.items():
            counts = ", ".join(
                f"{k} {n}" for k, n in sorted((member.counts + listener.counts).items())
            )
            log.debug("farm %s: %s", name, counts)


def _stop(members: dict[str, FarmMember]) -> None:
    for member in members.values():
        member.stop()


def _first(errors: BaseExceptionGroup) -> BaseException:
    found: BaseException = errors
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found


def renewal(
    doorway: Doorway,
    members: dict[str, FarmMember],
    now_s: Callable[[], float] = time.monotonic,
) -> Callable[[], None]:
    """Makes what the door knows as new as the members do, for who comes: who leads, and who may log
    in. However many come, that is not done more often than is needed."""
    due_s = float("-inf")

    def renew() -> None:
        nonlocal due_s
        if now_s() < due_s:
            return
        due_s = now_s() + KNOWN_S
        for gate in doorway.gates.values():
            member = members[gate.farm]
            gate.hint = member.hint()
            gate.users = {user.name: user for user in member.settings.users}
            if not member.settings.seal:
                continue
            with contextlib.suppress(OSError):  # it cannot be read just now: for the next who comes
                gate.invitations = read_invitations(member.settings.folder)

    return renew
