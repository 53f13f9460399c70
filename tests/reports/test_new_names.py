"""Rooms that got other names, as the tables tell it: like the edges, from the same records."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

from pyspark.sql import SparkSession

from appliance.cores.edge.new_names import NewNames
from appliance.formats.renaming import Renaming, encode_renaming
from appliance.reports import tables

START = datetime(2026, 1, 1, tzinfo=UTC)
SCHEMA = "room_id string, body binary, shard int, timestamp timestamp, author string, kind string"


def at(number: int) -> datetime:
    return START + timedelta(microseconds=number)


def test_rooms_are_called_as_edges_call_them(spark: SparkSession, seed: int) -> None:
    chance, first_us = random.Random(seed), int(START.timestamp() * 1_000_000)
    names, rooms = NewNames(), "abcdef"
    rows = [(f"id-{room}", room.encode(), 1, at(0), "anna", "room_create") for room in rooms]
    for number in range(1, 60):
        room, name = chance.choice("abcde"), chance.choice("abcdefghijklm")
        said_us = first_us + chance.randint(1, number) if chance.random() < 0.2 else 0
        body = encode_renaming(Renaming(room, name, chance.randint(1, 4), "anna", said_us))
        names.learn([(first_us + number, body)])
        rows.append(("shard", body, 0, at(number), "", "audit"))
    rows.append(("shard", b'{"act":{"do":"drain","room":"f","name":"x"}}', 0, at(70), "", "audit"))
    rows.append(("shard", b"no line of JSON", 0, at(71), "", "audit"))
    found = tables.rooms(spark.createDataFrame(rows, SCHEMA)).collect()
    called = {row.made_as: row.room for row in found}
    assert called == {room: names.shown(room) for room in rooms}
    assert any(room != made for made, room in called.items()) and len(found) == len(rooms)
    assert {row.room_id for row in found} == {f"id-{room}" for room in rooms}
