"""Sites that share a room over streams with mutual TLS: real sockets, stores and signatures."""

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import uvloop

from tests.roles.federation.sites import Site, equal, figures, until

STORY_S = 300


def run(
    folder: Path, count: int, links: list[list[int]], story: Callable[[list[Site]], Awaitable[None]]
) -> None:
    async def whole() -> None:
        sites = [Site(folder, number, count) for number in range(count)]
        try:
            async with asyncio.timeout(STORY_S):
                for site in sites:
                    await site.start(sites, links[site.number])
                await story(sites)
        finally:
            for site in sites:
                await site.stop()

    uvloop.run(whole())


def expected(sites: list[Site]) -> list[tuple[str, str]]:
    return sorted((site.name, f"{i}") for site in sites for i in range(1, site.posted + 1))


async def check(sites: list[Site]) -> None:
    total = sum(site.posted for site in sites)
    await until(lambda: equal(sites, total), tell=lambda: figures(sites))
    for site in sites:
        texts = site.texts(sites)
        assert sorted(texts) == expected(sites)
        own = [text for name, text in texts if name == site.name]
        assert own == sorted(own, key=int)
        site.channel.check()


def test_two_sites_end_with_each_message_once_in_the_same_order(tmp_path: Path) -> None:
    async def story(sites: list[Site]) -> None:
        for number in range(40):
            site = sites[number % 2]
            site.post(str(site.posted + 1))
            await asyncio.sleep(0.003)
        await check(sites)

    run(tmp_path, 2, [[], [0]], story)


def test_sites_in_a_line_converge_though_the_ends_never_meet(tmp_path: Path) -> None:
    async def story(sites: list[Site]) -> None:
        for number in range(45):
            site = sites[number % 3]
            site.post(str(site.posted + 1))
            await asyncio.sleep(0.003)
        await check(sites)
        assert not sites[0].counters["closed_overflow"]

    run(tmp_path, 3, [[], [0], [1]], story)


def test_what_is_said_on_both_sides_of_a_cut_is_exchanged_afterwards(tmp_path: Path) -> None:
    async def story(sites: list[Site]) -> None:
        for site in sites:
            site.post("1")
        await check(sites)
        await sites[0].stop()
        for number in range(2, 30):
            sites[1].post(str(number))
        await sites[0].start(sites, [])
        for number in range(2, 30):
            sites[0].post(str(number))
        await check(sites)

    run(tmp_path, 2, [[], [0]], story)


def test_a_site_without_its_quorum_takes_nothing_and_loses_nothing(tmp_path: Path) -> None:
    async def story(sites: list[Site]) -> None:
        sites[1].log.quorum = False
        for number in range(1, 20):
            sites[0].post(str(number))
        await until(lambda: sites[1].channel.statistics().ready == 19)
        assert not sites[1].channel.order()
        await sites[1].stop()
        await sites[1].start(sites, [0])
        assert sites[1].channel.statistics().ready == 19
        sites[1].log.quorum = True
        for record in list(sites[1].channel.state.incoming.ready.values()):
            assert record.message.sender_id == "site-0"
        sites[1].log.commit()
        await check(sites)

    run(tmp_path, 2, [[], [0]], story)


def test_a_store_that_is_lost_is_made_again_from_the_log_and_the_others(tmp_path: Path) -> None:
    async def story(sites: list[Site]) -> None:
        for number in range(1, 16):
            for site in sites:
                site.post(str(number))
        await check(sites)
        before = sites[1].channel.order()
        await sites[1].stop()
        shutil.rmtree(sites[1].folder / "channel")
        await sites[1].start(sites, [0])
        sites[0].post("16")
        sites[1].post("16")
        await check(sites)
        assert sites[1].channel.order()[: len(before)] == before

    run(tmp_path, 2, [[], [0]], story)
