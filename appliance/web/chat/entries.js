// From records to what is shown: days, blocks of one author, and texts put together again from
// their records.

import {
  KIND_FEDERATED,
  KIND_IMPORTED,
  KIND_MESSAGE,
  KIND_ROOM_CREATE,
  KIND_ROOM_POLICY,
} from "./chat.js";
import { continuesText, isFull } from "./text.js";
import { day, sameBlock, sameDay } from "./wording.js";

const EVENTS = {
  [KIND_ROOM_CREATE]: "created the room",
};

const SAID = [KIND_MESSAGE, KIND_FEDERATED, KIND_IMPORTED]; // what people wrote

// What a policy says, by its bits: the first of the eight bytes that are its body.
function policyWords(body) {
  const bits = body.charCodeAt(0);
  return `${bits & 1 ? "closed the room" : "set the room to open"}${
    bits & 2 ? ", shared with other sites" : ""
  }`;
}

function eventWords({ kind, body }) {
  if (SAID.includes(kind)) return "";
  if (kind === KIND_ROOM_POLICY) return policyWords(body);
  return EVENTS[kind] ?? "left a record of another kind";
}

// A text: one record, or one and those that continue it. Several may be unacknowledged; the text is
// if one is.
function textOf(record) {
  return {
    key: record.msg_id,
    first: record,
    last: record,
    body: record.body,
    state: record.state,
    error: record.error,
    op: record.op ?? null,
    ops: record.op === undefined ? [] : [record.op],
    ms: record.ms,
    author: record.author,
    importer: record.importer ?? "",
    gap: record.place?.gap === true,
    late: record.place?.late === true,
    tail: record.body, // of its newest record, which may have come in parts
    records: 1,
  };
}

const STATES = ["stored", "acknowledged", "queued", "flying", "failed"];

function join(text, record) {
  text.body += record.body;
  text.tail = record.place?.part > 0 ? text.tail + record.body : record.body;
  text.last = record;
  text.records += 1;
  text.gap ||= record.place?.gap === true;
  text.late ||= record.place?.late === true;
  if (record.op !== undefined) text.ops.push(record.op);
  if (STATES.indexOf(record.state) > STATES.indexOf(text.state))
    Object.assign(text, { state: record.state, error: record.error });
}

// What was imported as it is shown: time and author of then, and whoever vouches for these.
function shownImported(record) {
  return {
    ...record,
    state: "stored",
    author: record.said_by,
    importer: record.author,
    ms: record.said_at / 1000,
  };
}

// A record as it is shown: who is elsewhere is author@site, and time is when it was said there.
function shown(record, places) {
  if (record.said_by !== undefined) return shownImported(record);
  const place = places.of(record.op);
  const away = place ? place.site !== places.site : record.kind === KIND_FEDERATED;
  return {
    ...record,
    place,
    away,
    state: "stored",
    author: away ? `${record.author}@${place?.site ?? "…"}` : record.author,
    ms: (place ?? record).timestamp / 1000,
  };
}

// Whether `record`, of another site, is the next part of the message whose newest part is
// `text.last`, or the next message of the text that it begins.
function continuesAway(record, text) {
  const [place, last] = [record.place, text.last.place];
  if (!place || !last || record.author !== text.author) return false;
  if (place.part > 0) return last.part === place.part - 1 && last.timestamp === place.timestamp;
  return (
    last.part === last.parts - 1 && record.parent_id === text.first.msg_id && isFull(text.tail)
  );
}

// Whether an imported record is the next piece of the message that `text` begins.
function continuesImported(record, text) {
  return (
    record.parent_id === text.first.msg_id &&
    record.client_seq === text.last.client_seq + 1 &&
    record.said_at === text.first.said_at &&
    record.author === text.author
  );
}

function continues(record, text) {
  if (record.importer) return continuesImported(record, text);
  if (record.away) return continuesAway(record, text);
  return record.parent_id && continuesText(record, text.last, text.first);
}

// Texts and events in order, from a timeline's records and the outbox's items.
function textsOf(records, items, own, places) {
  const texts = [];
  const byMessage = new Map();
  const name = (id, text) => byMessage.has(id) || byMessage.set(id, text); // of two the older one
  const growing = new Map(); // client_id, or author elsewhere -> the newest text
  const stored = places.inOrder(records).map((record) => shown(record, places));
  const written = items.map((item) => ({
    ...item,
    kind: KIND_MESSAGE,
    author: own.author,
    client_id: own.clientId,
    ms: item.timestamp ? item.timestamp / 1000 : item.written_ms,
  }));
  for (const record of [...stored, ...written]) {
    const writer = record.away ? record.author : record.client_id;
    const open = growing.get(writer);
    if (open && continues(record, open)) {
      join(open, record);
      name(record.msg_id, open);
      continue;
    }
    const text = textOf(record);
    text.event = eventWords(record);
    text.parent = record.parent_id ? (byMessage.get(record.parent_id) ?? "earlier") : null;
    growing.set(writer, text);
    name(record.msg_id, text);
    texts.push(text);
  }
  return texts;
}

// [{ kind: "day" | "new" | "event" | "block", key, ... }] for the view. `newFrom` is the first op
// that was unread when the room was opened; 0 for none. `places`: where messages of a shared room
// stand.
export function entriesOf(records, items, { own, newFrom, nowMs, places }) {
  const entries = [];
  let before = null;
  let markNew = newFrom > 0;
  for (const text of textsOf(records, items, own, places)) {
    if (!before || !sameDay(before.ms, text.ms)) {
      entries.push({
        kind: "day",
        key: `day-${text.key}`,
        label: day(text.ms, nowMs),
        ms: text.ms,
      });
    }
    if (markNew && text.op !== null && text.op >= newFrom) {
      entries.push({ kind: "new", key: "new" });
      markNew = false;
    }
    const block = entries[entries.length - 1];
    if (text.event) {
      entries.push({ kind: "event", key: text.key, text });
    } else if (
      block.kind === "block" &&
      block.author === text.author &&
      block.importer === text.importer &&
      sameBlock(before.ms, text.ms) &&
      !text.parent &&
      !text.gap
    ) {
      block.texts.push(text);
    } else {
      entries.push({
        kind: "block",
        key: text.key,
        author: text.author,
        importer: text.importer,
        own: text.author === own.author && !text.importer,
        ms: text.ms,
        texts: [text],
      });
    }
    before = text;
  }
  return entries;
}
