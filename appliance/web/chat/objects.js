// What the followers of a room share besides its messages: what it is about, pins, reactions, who
// is there, who types. Pure: times are given.

export const TYPING_MS_MAX = 6000; // who says nothing for so long types no more
const NOTHING = Object.freeze({ pinned: false, reactions: Object.freeze([]) });

// `reactions` with or without that of `author`: a new list.
function reacted(reactions, emoji, author, present) {
  const found = reactions.find((each) => each.emoji === emoji) ?? { emoji, authors: [] };
  const others = found.authors.filter((each) => each !== author);
  const changed = { emoji, authors: present ? [...others, author] : others };
  const rest = reactions.includes(found)
    ? reactions.map((each) => (each === found ? changed : each))
    : [...reactions, changed];
  return rest.filter((each) => each.authors.length > 0);
}

export class RoomObjects {
  constructor() {
    this.typing = new Map(); // author -> until when
    this.clear();
  }

  clear() {
    this.topic = "";
    this.description = "";
    this.marker = 0; // the op up to which this user has read, on whatever device
    this.pins = []; // msg_ids, the newest first
    this.people = new Map(); // author -> "online" or "away"
    this.messages = new Map(); // msg_id -> { pinned, reactions: [{ emoji, authors }] }
    this.cursor = null; // reactions to older messages than this one were not told yet
  }

  // What is shared of one message: the same object as long as nothing of it changes.
  of(msgId) {
    return this.messages.get(msgId) ?? NOTHING;
  }

  // Everything that holds now, or (`before`) what holds of older messages.
  replace({ items, before, cursor }) {
    if (before === undefined) this.clear();
    this.cursor = cursor ?? null;
    for (const item of items) this.apply(item);
  }

  apply({ kind, present = true, msg_id: msgId, author, text = "", op = 0 }, nowMs = 0) {
    if (kind === "topic") this.topic = text;
    else if (kind === "description") this.description = text;
    else if (kind === "pin") this.pin(msgId, present);
    else if (kind === "reaction") {
      const reactions = reacted(this.of(msgId).reactions, text, author, present);
      this.messages.set(msgId, { ...this.of(msgId), reactions });
    } else if (kind === "read_marker") this.marker = Math.max(this.marker, op);
    else if (kind === "typing" && present) this.typing.set(author, nowMs + TYPING_MS_MAX);
    else if (kind === "typing") this.typing.delete(author);
    else if (kind === "presence" && text === "offline") {
      this.people.delete(author);
      this.typing.delete(author);
    } else if (kind === "presence") this.people.set(author, text);
  }

  pin(msgId, present) {
    const others = this.pins.filter((each) => each !== msgId);
    this.pins = present ? [...others, msgId].sort().reverse() : others;
    this.messages.set(msgId, { ...this.of(msgId), pinned: present });
  }

  typingNow(nowMs) {
    for (const [author, untilMs] of this.typing) if (untilMs <= nowMs) this.typing.delete(author);
    return [...this.typing.keys()].sort();
  }
}
