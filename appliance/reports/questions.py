"""What a report answers: tables in, tables out. Each function is one question, in Spark's words.

`traffic` is by hour, room, author and kind, so most answers never touch the records.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from appliance.reports.tables import SAID

DORMANT_DAYS = 7
SIZE_EDGES = (0, 32, 64, 128, 256, 512, 1024, 2048)
REPLY_EDGES_S = (0, 5, 15, 60, 300, 900, 3600, 14_400, 86_400)


def counts() -> tuple[Column, Column]:
    """Messages and bytes of a group of traffic."""
    return f.sum("records").alias("messages"), f.sum("bytes").alias("bytes")


def said(traffic: DataFrame) -> DataFrame:
    """Only what people wrote."""
    return traffic.where(f.col("kind").isin(*SAID))


def messages_by_hour(traffic: DataFrame) -> DataFrame:
    """Hours without a message are absent."""
    return (
        said(traffic)
        .groupBy("hour")
        .agg(
            *counts(),
            f.countDistinct("author").alias("authors"),
            f.countDistinct("room_id").alias("rooms"),
        )
        .orderBy("hour")
    )


def messages_by_day(traffic: DataFrame) -> DataFrame:
    return (
        said(traffic)
        .groupBy("date")
        .agg(
            *counts(),
            f.countDistinct("author").alias("authors"),
            f.countDistinct("room_id").alias("rooms"),
        )
        .orderBy("date")
    )


def messages_by_room(traffic: DataFrame, rooms: DataFrame) -> DataFrame:
    found = (
        said(traffic)
        .groupBy("room_id", "shard")
        .agg(
            *counts(),
            f.countDistinct("author").alias("authors"),
            f.min("first").alias("first"),
            f.max("last").alias("last"),
        )
    )
    return (
        found.join(rooms.select("room_id", "room"), "room_id", "left")
        .select(
            f.coalesce("room", "room_id").alias("room"),
            "room_id",
            "shard",
            "messages",
            "bytes",
            "authors",
            "first",
            "last",
        )
        .orderBy(f.desc("messages"), "room_id")
    )


def messages_by_author(traffic: DataFrame) -> DataFrame:
    return (
        said(traffic)
        .groupBy("author")
        .agg(
            *counts(),
            f.countDistinct("room_id").alias("rooms"),
            f.countDistinct("date").alias("days"),
            f.min("first").alias("first"),
            f.max("last").alias("last"),
        )
        .orderBy(f.desc("messages"), "author")
    )


def messages_by_room_author_day(traffic: DataFrame, rooms: DataFrame) -> DataFrame:
    found = said(traffic).groupBy("date", "room_id", "author").agg(*counts())
    return (
        found.join(rooms.select("room_id", "room"), "room_id", "left")
        .select(
            "date",
            f.coalesce("room", "room_id").alias("room"),
            "author",
            "messages",
            "bytes",
        )
        .orderBy("date", "room", "author")
    )


def active_users(traffic: DataFrame) -> DataFrame:
    """People who wrote: on the day, within 7 and 30 days up to it, and for the first time."""
    own = said(traffic).select("author", "date").distinct()
    days = own.select(f.col("date").alias("day")).distinct()
    recent = days.join(
        own, (f.col("date") <= f.col("day")) & (f.col("date") > f.date_sub("day", 30))
    )
    found = recent.groupBy("day").agg(
        *(
            f.countDistinct(
                f.when(f.col("date") > f.date_sub("day", days_back), f.col("author"))
            ).alias(name)
            for name, days_back in (("daily", 1), ("weekly", 7), ("monthly", 30))
        )
    )
    first = own.groupBy("author").agg(f.min("date").alias("day"))
    fresh = first.groupBy("day").agg(f.count(f.lit(1)).alias("fresh"))
    return (
        found.join(fresh, "day", "left")
        .select(
            f.col("day").alias("date"),
            "daily",
            "weekly",
            "monthly",
            f.coalesce("fresh", f.lit(0)).alias("new"),
        )
        .orderBy("date")
    )


def rooms_new(traffic: DataFrame, rooms: DataFrame) -> DataFrame:
    """All rooms, the newest first, with what was written in them since."""
    found = said(traffic).groupBy("room_id").agg(*counts())
    return (
        rooms.join(found, "room_id", "left")
        .select(
            "room",
            "room_id",
            "created",
            "created_by",
            f.coalesce("messages", f.lit(0)).alias("messages"),
        )
        .orderBy(f.desc("created"), "room")
    )


def rooms_dormant(traffic: DataFrame, rooms: DataFrame) -> DataFrame:
    """Rooms where nobody wrote in the last days before the newest record, longest silence first."""
    newest = traffic.agg(f.max("last").alias("newest"))
    last = said(traffic).groupBy("room_id").agg(f.max("last").alias("last"), counts()[0])
    known = rooms.select("room_id", "room", "created").join(last, "room_id", "left")
    silent = f.coalesce("last", "created")
    days = (f.col("newest").cast("double") - silent.cast("double")) / 86_400
    return (
        known.crossJoin(newest)
        .withColumn("days_silent", f.round(days, 1))
        .where(f.col("days_silent") >= DORMANT_DAYS)
        .select(
            "room",
            "room_id",
            "last",
            "days_silent",
            f.coalesce("messages", f.lit(0)).alias("messages"),
        )
        .orderBy(f.desc("days_silent"), "room")
    )


def week(traffic: DataFrame) -> DataFrame:
    """Messages by day of the week (1 = Monday) and hour of the day."""
    return (
        said(traffic)
        .groupBy((f.weekday("hour") + 1).alias("weekday"), f.hour("hour").alias("hour"))
        .agg(counts()[0])
        .orderBy("weekday", "hour")
    )


def replies(records: DataFrame) -> DataFrame:
    """Each message that answers another one, with the seconds between them. The further pieces of a
    long message that was imported are no answers."""
    own = records.where(f.col("kind").isin(*SAID))
    parents = own.select(
        "room_id",
        f.col("msg_id").alias("parent_id"),
        f.col("timestamp").alias("asked"),
        f.col("author").alias("asked_by"),
    )
    answers = own.where(f.col("parent_id").isNotNull()).select(
        "date", "room_id", "parent_id", "timestamp", "author", "msg_id", "said_at"
    )
    wait = f.col("timestamp").cast("double") - f.col("asked").cast("double")
    piece = (
        f.col("said_at").isNotNull()
        & (f.col("timestamp") == f.col("asked"))
        & (f.col("author") == f.col("asked_by"))
    )
    return (
        answers.join(parents, ["room_id", "parent_id"])
        .where(~piece)
        .drop("said_at")
        .withColumn("seconds", wait)
    )


def threads(answers: DataFrame, rooms: DataFrame) -> DataFrame:
    """Messages that were answered: replies, people, time to the first and to the last one."""
    found = answers.groupBy("room_id", "parent_id").agg(
        f.min("asked").alias("asked"),
        f.first("asked_by").alias("asked_by"),
        f.count(f.lit(1)).alias("replies"),
        f.countDistinct("author").alias("authors"),
        f.round(f.min("seconds"), 3).alias("first_reply_s"),
        f.round(f.max("seconds"), 3).alias("last_reply_s"),
    )
    return found.join(rooms.select("room_id", "room"), "room_id", "left").orderBy(
        f.desc("replies"), "asked"
    )


def reply_times(threads: DataFrame) -> DataFrame:
    """How long first replies take, by room."""
    quantiles = [
        f.round(f.percentile("first_reply_s", f.lit(q)), 3).alias(name)
        for name, q in (("p50_s", 0.5), ("p90_s", 0.9), ("p99_s", 0.99))
    ]
    return (
        threads.groupBy(f.coalesce("room", "room_id").alias("room"))
        .agg(f.count(f.lit(1)).alias("threads"), f.sum("replies").alias("replies"), *quantiles)
        .orderBy(f.desc("threads"), "room")
    )


def histogram(values: DataFrame, column: str, edges: tuple[int, ...], name: str) -> DataFrame:
    """How many values lie from each edge up to the next."""
    found = f.lit(edges[-1])
    for low, high in reversed(list(zip(edges, edges[1:], strict=False))):
        found = f.when(f.col(column) < high, f.lit(low)).otherwise(found)
    return values.groupBy(found.alias(name)).agg(f.count(f.lit(1)).alias("count")).orderBy(name)


def sizes(records: DataFrame) -> DataFrame:
    """Messages by the bytes of their body."""
    own = records.where(f.col("kind").isin(*SAID))
    return histogram(own, "body_len", SIZE_EDGES, "bytes_from")


def first_reply_times(threads: DataFrame) -> DataFrame:
    """Threads by the time to their first reply."""
    return histogram(threads, "first_reply_s", REPLY_EDGES_S, "seconds_from")


def peaks(records: DataFrame) -> DataFrame:
    """Of each day the busiest second and the busiest minute."""
    found = (
        records.where(f.col("kind").isin(*SAID))
        .groupBy("date", f.date_trunc("second", "timestamp").alias("second"))
        .agg(f.count(f.lit(1)).alias("messages"))
    )
    minutes = found.groupBy("date", f.date_trunc("minute", "second").alias("minute")).agg(
        f.sum("messages").alias("messages")
    )
    by_second = found.groupBy("date").agg(
        f.max("messages").alias("in_a_second"), f.max_by("second", "messages").alias("second")
    )
    by_minute = minutes.groupBy("date").agg(
        f.max("messages").alias("in_a_minute"), f.max_by("minute", "messages").alias("minute")
    )
    return by_second.join(by_minute, "date").orderBy("date")


def volume(traffic: DataFrame, *, record_size: int) -> DataFrame:
    """Records of all kinds by day and shard, and how much there is of them so far."""
    by_day = traffic.groupBy(f.col("stored").alias("date"), "shard").agg(
        f.sum("records").alias("records")
    )
    so_far = Window.partitionBy("shard").orderBy("date")
    total = f.sum("records").over(so_far)
    return by_day.select(
        "date",
        "shard",
        "records",
        (f.col("records") * record_size).alias("bytes"),
        total.alias("records_so_far"),
        (total * record_size).alias("bytes_so_far"),
    ).orderBy("date", "shard")
