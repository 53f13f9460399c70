"""By whom an edge reads a log when its node holds no replica of it any more, or one again."""

from appliance.drivers.host.node_folder import left_name
from tests.roles.conftest import MakeSite
from tests.roles.wired_site import WiredSite, until


def test_an_edge_reads_at_another_node_until_its_own_has_a_replica_that_is_well(
    make_site: MakeSite, hurried: None
) -> None:
    async def story(site: WiredSite) -> None:
        for index in (0, 1):
            await site.start_replica(index)
        edge = await site.start_edge(0)
        replicas, ops = edge._replicas, list[int]()
        await until(lambda: not edge.health())
        async with site.client(0) as client:
            room = (await client.create_room("moved")).room_id
            events = aiter(await client.subscribe(room, since_op=0))

            async def say() -> None:
                op = (await client.send(room, "said")).op
                while op not in ops:
                    ops.append((await anext(events)).op)

            await say()
            assert edge.status().remote == {}
            mark = site.node(0) / left_name(0)
            mark.write_text("{}\n")  # its replica runs on, and may never hear what comes
            replicas.on_site(replicas._node)
            await until(lambda: edge.status().remote == {0: "node-1"} and not edge.health())
            await say()
            mark.unlink()
            replicas._locals[0].behind = "fetching its state"
            replicas.on_site(replicas._node)
            assert edge.status().remote == {0: "node-1"}
            await say()
            await until(lambda: edge.status().remote == {})  # it said how it is
            await say()
        assert ops == [1, 2, 3, 4, 5] and edge._counters["remote_sources"] >= 1

    make_site(2).run(story)
