"""What the core hears of a member's links to its peers."""

import asyncio
import logging
from pathlib import Path

from appliance.formats.raft_legacy.configuration import Server
from appliance.formats.raft_legacy.frame import CLIENT_REQUEST, Request
from appliance.roles.farm.member import FarmMember
from appliance.roles.farm.settings import TLS, FarmSettings
from tests.roles.farm.inside import PASSWORD, USERS, user

NOBODY = "tcp://127.0.0.1:1"  # where nobody listens
OLD, NEW = b"o" * 32, b"n" * 32


def member_of_two(folder: Path) -> FarmMember:
    settings = FarmSettings(
        folder=folder, id=1, farm="farm", listen=("127.0.0.1", 1), endpoint=NOBODY,
        peers=(Server(2, NOBODY),), join=False, carrier=TLS, user="node1", password=PASSWORD,
        users=USERS, pins={2: OLD},
    )  # fmt: skip
    return FarmMember(settings, logging.getLogger("farm"))


def test_a_peer_that_is_dialled_by_another_key_is_lost_to_the_core_before_it_is_there_anew(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        member = member_of_two(tmp_path / "member")
        core = member.node.member
        try:
            member._hold_links()
            first = member.links[2]
            member._feed("open", first, (False, None))
            core.send(core.peers[2], Request(CLIENT_REQUEST, source=1, destination=2))
            member.learn(user("node2", "member", 2), OLD)
            assert member.links[2] is first and core.peers[2].flight, "the same key: it goes on"
            member.learn(user("node2", "member", 2), NEW)
            assert not core.peers[2].connected and not core.peers[2].flight
            member._hold_links()
            second = member.links[2]
            assert second is not first and second.route.pin == NEW
            member._feed("closed", first, None)  # it comes late, and is of no link any more
            member._feed("open", second, (False, None))
            assert core.peers[2].connected
        finally:
            for link in member.links.values():
                await link.close()
            member.disk.shutdown()
            member.storage.close()

    asyncio.run(story())
