// From records to what is shown: days, blocks of one author, and texts put together again from
// their records.

import { KIND_MESSAGE, KIND_ROOM_CREATE, KIND_ROOM_POLICY } from "./chat.js";
import { continuesText } from "./text.js";
import { day, sameBlock, sameDay } from "./wording.js";

const EVENTS = {
  [KIND_ROOM_CREATE]: "created the room",
  [KIND_ROOM_POLICY]: "changed the rules of the room",
};

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
    ms: record.ms,
    author: record.author,
    records: 1,
  };
}

const STATES = ["stored", "acknowledged", "queued", "flying", "failed"];

function join(text, record) {
  text.body += record.body;
  text.last = record;
  text.records += 1;
  if (STATES.indexOf(record.state) > STATES.indexOf(text.state))
    Object.assign(text, { state: record.state, error: record.error });
}

// Texts and events in order, from a timeline's records and the outbox's items.
function textsOf(records, items, own) {
  const texts = [];
  const byMessage = new Map();
  const growing = new Map(); // client_id -> its newest text
  const stored = records.map((record) => ({
    ...record,
    state: "stored",
    ms: record.timestamp / 1000,
  }));
  const written = items.map((item) => ({
    ...item,
    kind: KIND_MESSAGE,
    author: own.author,
    client_id: own.clientId,
    ms: item.timestamp ? item.timestamp / 1000 : item.written_ms,
  }));
  for (const record of [...stored, ...written]) {
    const open = growing.get(record.client_id);
    if (open && record.parent_id && continuesText(record, open.last, open.first)) {
      join(open, record);
      byMessage.set(record.msg_id, open);
      continue;
    }
    const text = textOf(record);
    text.event =
      record.kind === KIND_MESSAGE ? "" : (EVENTS[record.kind] ?? "left a record of another kind");
    text.parent = record.parent_id ? (byMessage.get(record.parent_id) ?? "earlier") : null;
    growing.set(record.client_id, text);
    byMessage.set(record.msg_id, text);
    texts.push(text);
  }
  return texts;
}

// [{ kind: "day" | "new" | "event" | "block", key, ... }] for the view. `newFrom` is the first op
// that was unread when the room was opened; 0 for none.
export function entriesOf(records, items, { own, newFrom, nowMs }) {
  const entries = [];
  let before = null;
  for (const text of textsOf(records, items, own)) {
    if (!before || !sameDay(before.ms, text.ms)) {
      entries.push({
        kind: "day",
        key: `day-${text.key}`,
        label: day(text.ms, nowMs),
        ms: text.ms,
      });
    }
    const fresh =
      newFrom > 0 && text.op !== null && text.op >= newFrom && (!before || before.op < newFrom);
    if (fresh) entries.push({ kind: "new", key: "new" });
    const block = entries[entries.length - 1];
    if (text.event) {
      entries.push({ kind: "event", key: text.key, text });
    } else if (
      block.kind === "block" &&
      block.author === text.author &&
      sameBlock(before.ms, text.ms) &&
      !text.parent
    ) {
      block.texts.push(text);
    } else {
      entries.push({
        kind: "block",
        key: text.key,
        author: text.author,
        own: text.author === own.author,
        ms: text.ms,
        texts: [text],
      });
    }
    before = text;
  }
  return entries;
}
