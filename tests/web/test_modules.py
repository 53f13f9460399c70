"""Rules of the chat page's modules, tried in the browser without any node."""

import pytest
from playwright.sync_api import Page

BODY_SIZE_MAX = 2048


def run(page: Page, body: str, argument: object = None) -> object:
    """The value of an async function body; `load(name)` imports a module of the chat page."""
    return page.evaluate(
        "async (argument) => { const load = (name) => import(`/web/chat/${name}.js`);" + body + "}",
        argument,
    )


SPLIT = "const { splitText } = await load('text'); return splitText(argument);"
TEXTS = [
    "",
    "short",
    "x" * 2048,
    "x" * 2049,
    "é" * 1500,
    "虎" * 3000,
    "🐅" * 1200,
    "👩‍👩‍👧‍👦" * 300,
    "word " * 1000,
    "line\n" * 900,
    "e" + "\u0301" * 3000,
    "a" * 2047 + "🐅" + "b" * 2047,
]


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: f"{text[:4]!r}-{len(text)}")
def test_parts_of_a_text_fit_into_records_and_join_to_the_text(blank: Page, text: str) -> None:
    parts = run(blank, SPLIT, text)
    assert "".join(parts) == text
    sizes = [len(part.encode()) for part in parts]
    assert max(sizes) <= BODY_SIZE_MAX
    assert all(size >= BODY_SIZE_MAX * 3 // 4 for size in sizes[:-1])
    assert len(parts) == 1 or all(parts)


def test_a_family_of_code_points_is_not_torn_apart(blank: Page) -> None:
    family = "👩‍👩‍👧‍👦"
    parts = run(blank, SPLIT, family * 300)
    assert [part.replace(family, "") for part in parts] == [""] * len(parts)


def test_a_split_prefers_the_space_between_words(blank: Page) -> None:
    parts = run(blank, SPLIT, "tiger " * 700)
    assert all(part.endswith("tiger ") for part in parts)


def test_only_full_parts_of_one_device_in_order_are_one_text(blank: Page) -> None:
    assert run(
        blank,
        """
      const { continuesText } = await load('text');
      const first = { msg_id: 'a', client_id: 'c', client_seq: 7, body: 'x'.repeat(2048) };
      const next = { msg_id: 'b', client_id: 'c', client_seq: 8, parent_id: 'a', body: 'y' };
      return [next, { ...next, client_seq: 9 }, { ...next, client_id: 'd' },
        { ...next, parent_id: 'z' }].map((each) => continuesText(each, first, first)).concat(
          [continuesText(next, { ...first, body: 'short' }, first)]);
    """,
    ) == [True, False, False, False, False]


TIMELINE = """
  const { Timeline, RECORDS_MAX, RECORDS_KEPT } = await load('timeline');
  const page = (from, until) =>
    Array.from({ length: until - from + 1 }, (_, i) => ({ op: from + i }));
"""


def test_a_timeline_never_has_a_hole(blank: Page) -> None:
    assert run(
        blank,
        TIMELINE
        + """
      const line = new Timeline(100);
      const said = [102, 100, 101].map((op) => line.addLive({ op }));
      said.push(line.addPage(page(80, 98), true, true));       // does not touch: left out
      said.push(line.addPage(page(80, 103), true, true));      // overlaps: only what is older
      said.push(line.addPage(page(1, 79), false, true));
      return [said, line.first, line.last, line.live, line.oldestReached,
        line.records.every((record, i) => record.op === line.first + i)];
    """,
    ) == [["gap", "known", "added", 0, 21, 79], 1, 101, True, True, True]


def test_a_timeline_is_bounded_at_either_end(blank: Page) -> None:
    assert run(
        blank,
        TIMELINE
        + """
      const line = new Timeline(10000);
      let until = 10000;
      while (until > 5000) { line.addPage(page(until - 99, until), true, true); until -= 100; }
      const reading = [line.records.length === RECORDS_MAX, line.first, line.live,
        line.addLive({ op: 10001 })];
      while (!line.live) {
        line.addPage(page(line.last + 1, Math.min(line.last + 100, 10001)), true, false);
      }
      const back = [line.records.length === RECORDS_MAX, line.last];
      line.settle();
      return [reading, back, line.records.length === RECORDS_KEPT, line.last, line.oldestReached];
    """,
    ) == [[True, 5001, False, "elsewhere"], [True, 10001], True, 10001, False]


# A log as a node keeps it: numbers in order, the first ack again for a number it knows.
OUTBOX = """
  const { Outbox, WINDOW } = await load('outbox');
  const storage = { map: {}, getItem(key) { return this.map[key] ?? null; },
    setItem(key, text) { this.map[key] = text; } };
  const open = () => new Outbox({ storage, key: 'k' });
  const box = open();
  box.adopt('device');
  const add = (body) =>
    box.add({ roomId: 'r', msgId: `m-${body}`, body, parentId: null, nowMs: 0 });
  const log = [];
  const answer = (frame) => {
    const known = log[frame.client_seq - 1];
    if (!known && frame.client_seq !== log.length + 1) {
      return { name: 'sequence_gap', expected: log.length + 1, ...frame };
    }
    if (!known) log.push(frame);
    return { ...frame, msg_id: log[frame.client_seq - 1].msg_id, op: frame.client_seq };
  };
  const deliver = (frames, outbox = box) => frames.map((frame) => {
    const said = answer(frame);
    return said.name ? outbox.onError(said, 0) : outbox.onAck(said);
  });
  const bodies = () => log.map((frame) => frame.body).join('');
"""


def test_numbers_follow_each_other_and_at_most_a_window_flies(blank: Page) -> None:
    assert run(
        blank,
        OUTBOX
        + """
      for (let i = 0; i < WINDOW + 5; i += 1) add(`${i},`);
      const first = box.take(0);
      const none = box.take(0);
      deliver(first);
      const rest = box.take(0);
      deliver(rest);
      const all = log.length === WINDOW + 5;
      return [first.length === WINDOW, none.length, rest.length, box.waiting, all];
    """,
    ) == [True, 0, 5, 0, True]


def test_what_was_lost_goes_again_under_its_number_from_another_page(blank: Page) -> None:
    assert run(
        blank,
        OUTBOX
        + """
      for (const body of 'abc') add(body);
      const flown = box.take(0);
      flown.slice(0, 2).forEach(answer);                       // stored, but their acks got lost
      const after = open();
      const again = after.take(0);
      const said = deliver(again, after);
      return [again.map((frame) => frame.client_seq), said, bodies(), after.waiting,
        open().items.length, open().clientId];
    """,
    ) == [[1, 2, 3], ["acknowledged"] * 3, "abc", 0, 0, "device"]


def test_a_refused_message_leaves_the_numbering_and_can_be_sent_again(blank: Page) -> None:
    assert run(
        blank,
        OUTBOX
        + """
      for (const body of 'abc') add(body);
      const [a, b, c] = box.take(0);
      box.onAck(answer(a));
      box.onError({ ...b, name: 'forbidden', detail: 'no', temporary: false }, 0);
      box.onError(answer(c), 0);                               // a gap: b left its number unused
      const again = box.take(0);
      deliver(again);
      box.retry('m-b');
      deliver(box.take(0));
      return [again.map((frame) => [frame.body, frame.client_seq]), bodies(), box.waiting];
    """,
    ) == [[["c", 2]], "acb", 0]


def test_what_was_refused_for_its_id_goes_again_under_another_as_do_answers_to_it(
    blank: Page,
) -> None:
    assert run(
        blank,
        OUTBOX
        + """
      const sent = [];
      for (const name of ['msg_id_invalid', 'msg_id_taken', 'forbidden']) {
        add('a');
        const parent = box.items.at(-1).msg_id;
        box.add({ roomId: 'r', msgId: 'answer', body: 'b', parentId: parent, nowMs: 0 });
        const [a, b] = box.take(0);
        box.onError({ ...a, name, temporary: false }, 0);
        box.onError({ ...b, name: 'sequence_gap', expected: a.client_seq }, 0);
        box.retry(a.msg_id, 'new');
        const again = box.take(0);
        sent.push(again.map((frame) => [frame.msg_id, frame.parent_id ?? null]));
        deliver(again);
      }
      return [sent, box.waiting];
    """,
    ) == [
        [
            [["answer", "new"], ["new", None]],
            [["answer", "new"], ["new", None]],
            [["answer", "m-a"], ["m-a", None]],
        ],
        0,
    ]


def test_busy_pauses_a_room_and_keeps_its_order(blank: Page) -> None:
    assert run(
        blank,
        OUTBOX
        + """
      for (const body of 'abc') add(body);
      const [a, b, c] = box.take(0);
      box.onError({ ...a, name: 'busy', temporary: true, retry_after: 1000 }, 0);
      box.onError(answer(b), 0);
      box.onError(answer(c), 0);
      const during = box.take(999).length;
      const end = box.nextPauseEndMs(500);
      deliver(box.take(1000));
      return [during, end, bodies()];
    """,
    ) == [0, 1000, "abc"]


def test_a_log_that_forgot_the_device_is_followed_from_its_number(blank: Page) -> None:
    assert run(
        blank,
        OUTBOX
        + """
      for (const body of 'ab') add(body);
      deliver(box.take(0));
      log.length = 0;                                          // its window was evicted
      for (const body of 'cd') add(body);
      deliver(box.take(0));
      const again = box.take(0).map((frame) => [frame.body, frame.client_seq]);
      return again;
    """,
    ) == [["c", 1], ["d", 2]]


def test_a_first_message_that_may_have_been_stored_long_ago_fails_and_the_others_go_on(
    blank: Page,
) -> None:
    assert run(
        blank,
        OUTBOX
        + """
      for (const body of 'ab') add(body);
      const [a, b] = box.take(0);
      const told = box.onError({ ...a, name: 'duplicate_expired', detail: 'perhaps stored' }, 0);
      box.onError({ ...b, name: 'sequence_gap', expected: 1 }, 0);
      deliver(box.take(0));
      return [told, bodies(), box.items.filter((item) => item.state === 'failed').length];
    """,
    ) == ["noted", "b", 1]


def test_a_number_used_by_another_record_is_told_and_cured_by_a_new_device(blank: Page) -> None:
    assert run(
        blank,
        OUTBOX
        + """
      add('a');
      const [frame] = box.take(0);
      const told = box.onAck({ ...frame, msg_id: 'somebody else' });
      box.onDisconnected();
      box.adopt('new device');
      deliver(box.take(0));
      return [told, bodies(), box.waiting, box.clientId];
    """,
    ) == ["collision", "a", 0, "new device"]


def test_a_message_seen_in_the_room_needs_no_ack(blank: Page) -> None:
    assert run(
        blank,
        OUTBOX
        + """
      add('a');
      add('b');
      const [a] = box.take(0);
      const seen = box.onSeen({ ...a, room_id: 'r' });
      return [seen, box.onAck({ ...a, op: 1 }), box.waiting, box.onSeen({ ...a, room_id: 'r' })];
    """,
    ) == [True, "unknown", 1, False]


LINK = """
  const { Link } = await load('link');
  const { stale, dead, sent = {} } = argument;
  const opened = [];
  let now = 0;
  performance.now = () => (now += argument.slow_ms);
  const { ByWebSocket } = await load('by_websocket');
  const { Ways } = await load('ways');
  globalThis.WebSocket = class {
    constructor(url) {
      opened.push(url);
      setTimeout(() => this.answer(url));
    }
    answer(url) {
      if (dead.includes(url)) return this.onclose?.({});
      this.onopen?.();
      this.hear({ type: 'welcome', node: 0 });
      if (stale.includes(url)) this.hear({ type: 'node_state', stale_since: 1 });
      if (sent[url]) {
        this.hear({ type: 'next_node', url: sent[url], spread: 40 });
        delete sent[url];
        this.onclose?.({});
      }
    }
    hear(frame) { this.onmessage?.({ data: JSON.stringify(frame) }); }
    send() {}
    close() {}
  };
  const ways = new Ways([ByWebSocket]);
  const link = new Link({ urls: [...'abc'], hello: () => ({}), onFrame() {}, onState() {}, ways });
  link.open();
  const sleep = (ms) => new Promise((wake) => setTimeout(wake, ms));
  const there = () => opened.length >= argument.opened && link.state.name === 'live';
  for (let i = 0; i < 3000 && !there(); i++) await sleep(10);
  await sleep(500);  // were it to leave, it would go on after less
  const name = link.state.name;
  link.close();
  return [opened.join(''), name];
"""


@pytest.mark.parametrize(
    ("stale", "dead", "opened", "slow_ms"),
    [
        ("a", "bc", "abca", 10_000),
        ("a", "bc", "abca", 0),
        ("ab", "", "abc", 0),
        ("abc", "", "abca", 10_000),
    ],
)
def test_nodes_that_are_cut_off_are_left_for_one_round_however_long_it_takes(
    blank: Page, stale: str, dead: str, opened: str, slow_ms: int
) -> None:
    told = {"stale": stale, "dead": dead, "opened": len(opened), "slow_ms": slow_ms}
    assert run(blank, LINK, told) == [opened, "live"]


def test_who_is_sent_on_goes_there_and_to_nobody_it_does_not_know(blank: Page) -> None:
    told = {"stale": "", "dead": "", "slow_ms": 0, "opened": 3}
    sent = {"a": "c", "c": "ws://203.0.113.9:1/v1"}
    assert run(blank, LINK, told | {"sent": sent}) == ["aca", "live"]


SHARED = """
  const { Places } = await load('places');
  const { entriesOf } = await load('entries');
  const place = (op, site, lamport, message_id, more = {}) =>
    ({ op, site, lamport, message_id, timestamp: lamport * 1000, part: 0, parts: 1, ...more });
  const record = (op, author, body, more = {}) => ({ op, author, body, kind: 0, msg_id: `m${op}`,
    client_id: author, client_seq: op, timestamp: 1e6 + op, ...more });
  const places = new Places();
  const show = (records, own = 'ann') => entriesOf(records, [],
    { own: { author: own, clientId: own }, newFrom: 0, nowMs: 0, places });
  const blocks = (entries) => entries.filter((entry) => entry.kind === 'block')
    .map((entry) => [entry.author, ...entry.texts.map((text) => text.body)]);
"""


def test_messages_of_several_sites_stand_in_the_order_of_all_sites(blank: Page) -> None:
    assert run(
        blank,
        SHARED
        + """
      places.take({ site: 'here', sites: 'oslo bergen', messages: [
        place(2, 'here', 900, 'b'), place(3, 'oslo', 500, 'z'), place(4, 'oslo', 900, 'a')] });
      const records = [record(1, 'system', '', { kind: 5 }), record(2, 'ann', 'ours'),
        record(3, 'ole', 'first', { kind: 6 }), record(4, 'ann', 'tie', { kind: 6 }),
        record(5, 'ann', 'just stored')];
      const entries = show(records);
      return [entries[1].kind, blocks(entries)];
    """,
    ) == [
        "event",  # a rule of the room keeps its place among what this site stored
        [["ole@oslo", "first"], ["ann@oslo", "tie"], ["ann", "ours", "just stored"]],
    ]


def test_a_message_that_crossed_in_parts_is_one_text_and_gaps_are_told(blank: Page) -> None:
    assert run(
        blank,
        SHARED
        + """
      const part = (number) => ({ part: number, parts: 2, timestamp: 7 });
      places.take({ site: 'here', sites: 'oslo', messages: [
        place(1, 'oslo', 10, 'a', part(0)), place(2, 'oslo', 11, 'b', part(1)),
        place(3, 'oslo', 12, 'c', { gap: true }), place(4, 'oslo', 13, 'd', { late: true })] });
      const kind = 6;
      const entries = show([record(1, 'ole', 'long ', { kind, client_id: 'c' }),
        record(2, 'ole', 'text', { kind, client_id: 'c' }),
        record(3, 'ole', 'then', { kind, client_id: 'c' }),
        record(4, 'ole', 'more', { kind, client_id: 'c' })]);
      const texts = entries.filter((each) => each.kind === 'block').flatMap((each) => each.texts);
      return texts.map((text) => [text.body, text.records, text.gap, text.late]);
    """,
    ) == [["long text", 2, False, False], ["then", 1, True, False], ["more", 1, False, True]]


def test_an_answer_means_the_older_of_two_messages_with_one_id(blank: Page) -> None:
    assert run(
        blank,
        SHARED
        + """
      const entries = show([record(1, 'ann', 'mine'),
        record(2, 'eve', 'not mine', { msg_id: 'm1' }),
        record(3, 'bob', 'yes', { parent_id: 'm1' })]);
      const texts = entries.filter((each) => each.kind === 'block').flatMap((each) => each.texts);
      return texts.map((text) => [text.body, text.parent?.body ?? null]);
    """,
    ) == [["mine", None], ["not mine", None], ["yes", "mine"]]


def test_what_was_imported_is_shown_of_its_author_with_who_imported_it(blank: Page) -> None:
    assert run(
        blank,
        SHARED
        + """
      const then = (op, text, more = {}) => record(op, 'ann', text,
        { kind: 10, said_by: 'Ada', said_at: 5e12, client_id: 'i', ...more });
      const entries = show([then(1, 'long '), then(2, 'text', { parent_id: 'm1' }),
        then(3, 'an answer', { parent_id: 'm1', said_at: 6e12 }), record(4, 'ann', 'now'),
        then(5, 'of the importer', { said_by: 'ann', said_at: 1e6 + 4 })]);
      return entries.filter((each) => each.kind === 'block').map((block) =>
        [block.author, block.importer, block.own, block.ms, block.texts.map((each) => each.body)]);
    """,
    ) == [
        ["Ada", "ann", False, 5e9, ["long text"]],
        ["Ada", "ann", False, 6e9, ["an answer"]],
        ["ann", "", True, 1000.004, ["now"]],
        ["ann", "ann", False, 1000.004, ["of the importer"]],
    ]


def test_a_tick_of_a_site_needs_every_record_of_the_text(blank: Page) -> None:
    assert run(
        blank,
        SHARED
        + """
      places.take({ site: 'here', sites: 'bergen oslo', messages: [
        place(1, 'here', 10, 'a', { acknowledged: 'bergen oslo' }),
        place(2, 'here', 11, 'b', { acknowledged: 'oslo' }), place(3, 'oslo', 12, 'c')] });
      const has = (ops) => places.ticks(ops).filter((each) => each.has).map((each) => each.site);
      return [has([1]), has([1, 2]), places.ticks([3]), places.ticks([2, 9])];
    """,
    ) == [["bergen", "oslo"], ["oslo"], [], []]
