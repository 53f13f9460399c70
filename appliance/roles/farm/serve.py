"""Members of one or several farms behind one listener, until they are told to stop."""

import asyncio
import logging
import signal
from collections.abc import Sequence

from appliance.base.errors import ApplianceError
from appliance.cores.raft.login import Doorway, path_of
from appliance.drivers.network.farm_stream import listen, server_tls
from appliance.roles.farm.door import Door, Taker
from appliance.roles.farm.member import FarmMember
from appliance.roles.farm.settings import RAW, TLS, FarmSettings

HINT_S = 0.1  # how old a hint of who leads may be


async def serve(farms: Sequence[FarmSettings], log: logging.Logger) -> int:
    """One member for each farm; all share listener, carrier and certificate of the first one.

    MemberOut when one is taken out of its farm; Broken or StorageError when one cannot go on.
    """
    first = farms[0]
    members = {settings.farm: FarmMember(settings, log) for settings in farms}
    assert len(members) == len(farms)
    doorway = Doorway({path_of(name): member.gate() for name, member in members.items()})
    takers: dict[str, Taker] = dict(members)
    door = Door(doorway, takers, raw=first.farm if first.carrier == RAW else "")
    tls = None
    if first.carrier == TLS:
        assert first.certificate is not None
        assert first.key is not None
        tls = server_tls(first.certificate, first.key)
    server = await listen(*first.listen, tls, door.on_stream)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, _stop, members)
    hints = loop.create_task(_hints(doorway, members))
    log.info("serving %s on %s:%d", ", ".join(members), *first.listen)
    try:
        async with asyncio.TaskGroup() as group:
            for member in members.values():
                group.create_task(member.run())
    except* ApplianceError as errors:
        raise _first(errors) from None
    finally:
        hints.cancel()
        server.close()
        await door.close()
        for name, member in members.items():
            counts = ", ".join(f"{k} {n}" for k, n in sorted((member.counts + door.counts).items()))
            log.info("farm %s: %s", name, counts)
    return 0


def _stop(members: dict[str, FarmMember]) -> None:
    for member in members.values():
        member.stop()


def _first(errors: BaseExceptionGroup) -> BaseException:
    found: BaseException = errors
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found


async def _hints(doorway: Doorway, members: dict[str, FarmMember]) -> None:
    while True:
        for gate in doorway.gates.values():
            gate.hint = members[gate.farm].hint()
        await asyncio.sleep(HINT_S)
