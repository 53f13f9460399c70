"""Which way the chat page takes to a node, tried in the browser without any node."""

from typing import Any

from playwright.sync_api import Page

# Ways that open after `ms`, or fail then where it is negative, or do neither (null).
WAYS = """
  const { Ways } = await import("/web/chat/ways.js");
  const begun = [], over = [];
  let now = 0;
  performance.now = () => now;
  const timers = new Map();
  let timerIds = 0;
  globalThis.setTimeout = (act, ms = 0) => {
    timers.set(++timerIds, { act, at: now + ms });
    return timerIds;
  };
  globalThis.clearTimeout = (id) => timers.delete(id);
  const pass = (until) => {
    for (;;) {
      const due = [...timers].filter(([, { at }]) => at <= until);
      if (due.length === 0) break;
      const [id, { act, at }] = due.sort(([, a], [, b]) => a.at - b.at)[0];
      timers.delete(id);
      now = Math.max(now, at);
      act();
    }
    now = until;
  };
  const made = (words, ms, reaches = () => true) => class {
    static words = words;
    static opensByAnswer = true;
    static couldReach(url) { return reaches(url); }
    constructor(url, told) {
      Object.assign(this, { said: [] });
      begun.push([words, now]);
      if (ms === null) return;
      setTimeout(() => {
        if (over.includes(this)) return;
        if (ms < 0) told.onEnd(`${words} failed`);
        else { told.onOpen(); told.onFrame({ type: "welcome" }); }
      }, Math.abs(ms));
    }
    send(frame) { this.said.push(frame); }
    close() { over.push(this); }
  };
  const began = (ways) => {
    const heard = [];
    const carried = ways.begin("wss://a", {
      onOpen: () => heard.push(["open", now]),
      onFrame: (frame) => heard.push([frame.type, now]),
      onEnd: (reason) => heard.push([reason, now]),
    });
    return { carried, heard };
  };
"""


def run(page: Page, body: str) -> Any:
    return page.evaluate("async () => {" + WAYS + body + "}")


def test_the_best_way_that_opens_within_its_head_start_carries_alone(blank: Page) -> None:
    assert run(
        blank,
        """
      const ways = new Ways([made("best", 1400), made("next", 10)]);
      const { carried, heard } = began(ways);
      pass(60_000);
      carried.send("x");
      return [heard, begun, carried.words, carried.carrier.said, ways.restUntil.size];
    """,
    ) == [[["open", 1400], ["welcome", 1400]], [["best", 0]], "best", ["x"], 0]


def test_a_way_that_hangs_costs_its_head_start_once(blank: Page) -> None:
    """The next time it rests, and after a while it is tried again."""
    assert run(
        blank,
        """
      const ways = new Ways([made("hangs", null), made("next", 10)]);
      const first = began(ways);
      pass(5_000);
      const second = began(ways);
      pass(10_000);
      const later = 605_000;
      pass(later);
      began(ways);
      const closed = over.length;
      return [first.heard[0], second.heard[0], begun, closed];
    """,
    ) == [
        ["open", 1510],
        ["open", 5010],
        [["hangs", 0], ["next", 1500], ["next", 5000], ["hangs", 605_000]],
        1,
    ]


def test_a_way_that_fails_gives_way_at_once_and_one_that_cannot_reach_is_not_tried(
    blank: Page,
) -> None:
    assert run(
        blank,
        """
      const ways = new Ways([made("never", 0, () => false), made("fails", -20), made("next", 5)]);
      const { heard } = began(ways);
      pass(60_000);
      return [heard[0], begun, ways.restUntil.size];
    """,
    ) == [["open", 25], [["fails", 0], ["next", 20]], 1]


def test_a_node_that_no_way_reaches_is_told_once_and_speaks_against_no_way(blank: Page) -> None:
    assert run(
        blank,
        """
      const ways = new Ways([made("one", -20), made("two", -5)]);
      const { heard } = began(ways);
      pass(60_000);
      return [heard, ways.restUntil.size];
    """,
    ) == [[["two failed", 25]], 0]


def test_a_better_way_that_opens_late_is_taken_and_the_other_is_not_blamed(blank: Page) -> None:
    assert run(
        blank,
        """
      const ways = new Ways([made("slow", 1600), made("slower", 1000)]);
      const { carried, heard } = began(ways);
      pass(60_000);
      return [heard[0], carried.words, over.length, ways.restUntil.size];
    """,
    ) == [["open", 1600], "slow", 1, 0]


def test_a_way_that_carries_nothing_is_doubted_and_when_all_rest_all_are_tried(
    blank: Page,
) -> None:
    assert run(
        blank,
        """
      const ways = new Ways([made("one", 1), made("two", 1)]);
      for (let i = 0; i < 3; i += 1) {
        const { carried } = began(ways);
        pass(now + 100);
        carried.doubt();
        carried.close();
      }
      return begun.map(([words]) => words);
    """,
    ) == ["one", "two", "one"]


def test_a_way_that_ends_before_anything_was_heard_is_doubted(blank: Page) -> None:
    """As where something on the way answers for the node."""
    assert run(
        blank,
        """
      const ends = class extends made("ends", null) {
        constructor(url, told) {
          super(url, told);
          setTimeout(() => { told.onOpen(); told.onEnd("closed"); }, 1);
        }
      };
      const ways = new Ways([ends, made("two", 1)]);
      const { heard } = began(ways);
      pass(100);
      began(ways);
      return [heard.map(([what]) => what), begun.map(([words]) => words)];
    """,
    ) == [["open", "closed"], ["ends", "two"]]


def test_a_way_that_says_that_nothing_comes_by_it_is_doubted_though_it_was_heard(
    blank: Page,
) -> None:
    """As a stream of events that something on the way keeps back."""
    assert run(
        blank,
        """
      const deaf = class extends made("deaf", null) {
        constructor(url, told) {
          super(url, told);
          setTimeout(() => {
            told.onOpen();
            told.onFrame({ type: "welcome" });
            told.onEnd("nothing comes", true);
          }, 1);
        }
      };
      const ways = new Ways([deaf, made("two", 1)]);
      began(ways);
      pass(100);
      began(ways);
      return begun.map(([words]) => words);
    """,
    ) == ["deaf", "two"]


def test_a_node_that_is_dead_speaks_against_no_way_though_requests_seem_to_open(
    blank: Page,
) -> None:
    """Nothing but what the node has said tells that it is there."""
    assert run(
        blank,
        """
      const requests = class extends made("requests", null) {
        static opensByAnswer = false;
        constructor(url, told) {
          super(url, told);
          setTimeout(() => told.onOpen(), 1);
          setTimeout(() => told.onEnd("no answer"), 5_000);
        }
      };
      const ways = new Ways([made("hangs", null), made("fails", -20), requests]);
      const { heard } = began(ways);
      pass(60_000);
      began(ways).carried.doubt();
      return [heard.map(([what]) => what), over.length, ways.restUntil.size];
    """,
    ) == [["open", "no answer"], 1, 0]


def test_what_is_closed_begins_nothing_more(blank: Page) -> None:
    assert run(
        blank,
        """
      const { carried, heard } = began(new Ways([made("hangs", null), made("next", 10)]));
      pass(100);
      carried.close();
      pass(60_000);
      return [heard, begun.length, over.length];
    """,
    ) == [[], 1, 1]


def test_frames_of_a_stream_are_whole_however_it_is_cut(blank: Page) -> None:
    assert (
        blank.evaluate("""
    async () => {
      const { Unframer } = await import("/web/chat/by_webtransport.js");
      const texts = ["", "a", "grüße 虎 🐅", "x".repeat(5000), "end"];
      const bytes = [];
      for (const text of texts) {
        const data = new TextEncoder().encode(text);
        bytes.push(data.length & 255, data.length >> 8, 0, 0, ...data);
      }
      const stream = Uint8Array.from(bytes);
      for (const cut of [1, 2, 3, 4, 5, 7, 64, 1000, 4999, stream.length]) {
        const unframer = new Unframer();
        const heard = [];
        for (let at = 0; at < stream.length; at += cut)
          heard.push(...unframer.take(stream.subarray(at, at + cut)));
        if (JSON.stringify(heard) !== JSON.stringify(texts)) return cut;
      }
      try {
        new Unframer().take(Uint8Array.of(0, 0, 0, 2));
      } catch (error) {
        return error.message;
      }
      return "taken";
    }
    """)
        == "a frame that is too large"
    )
