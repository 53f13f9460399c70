// What we wrote and nobody acknowledged yet.
//
// A device numbers its records in each room 1, 2, 3 ... (client_seq). A record keeps its number and
// its msg_id through reconnects, reloads and other nodes, so sending it again is harmless: the log
// answers with the first acknowledgement. Numbers are sent in order, at most WINDOW unanswered in a
// room (the log remembers the last 64 results of a device).
//
//      queued -> flying -> acknowledged -> (its record stands in the timeline: gone)
//        ^         |
//        |         +-- temporary error, sequence_gap, connection lost: back to queued, same number
//        +-- retry |
//      failed <----+-- refused for good: it leaves the numbering, those behind it move up
//
// A room goes back to its first unanswered record after any error, and only once all its flying
// records were answered: a record whose outcome is unknown is never given another number.
//
// Pure: `storage` (getItem, setItem), `nowMs` and ids are given.

export const WINDOW = 32; // unanswered records of one room
export const ITEMS_MAX = 512; // records waiting in one tab
const RETRY_MS_MIN = 250; // after a temporary error that names no delay
const NAME_REFUSED = ["msg_id_invalid", "msg_id_taken"]; // the same msg_id would be, again

const isUnanswered = (item) => item.state === "queued" || item.state === "flying";

export class Outbox {
  constructor({ storage, key }) {
    this.storage = storage;
    this.key = key;
    // In order of writing: { room_id, msg_id, body, parent_id, client_seq, state, ... }
    this.items = [];
    this.rooms = new Map(); // room_id -> { next, pausedUntilMs, goingBack, expected }
    this.clientId = null;
    this.load();
  }

  load() {
    let stored = null;
    try {
      stored = JSON.parse(this.storage.getItem(this.key));
    } catch {
      stored = null; // not ours: start empty
    }
    if (!stored || typeof stored.client_id !== "string" || !Array.isArray(stored.items)) return;
    this.clientId = stored.client_id;
    for (const [roomId, next] of stored.next) this.room(roomId).next = next;
    this.items = stored.items.map((item) => ({
      ...item,
      state: item.state === "failed" ? "failed" : "queued",
    }));
  }

  save() {
    const next = [...this.rooms].map(([roomId, room]) => [roomId, room.next]);
    const items = this.items.filter((item) => item.state !== "acknowledged");
    try {
      this.storage.setItem(this.key, JSON.stringify({ client_id: this.clientId, next, items }));
    } catch {
      // Storage full or forbidden: the page works on, only a reload would lose what is unanswered.
    }
  }

  // Become another device: everything unanswered is numbered anew.
  adopt(clientId) {
    this.clientId = clientId;
    this.rooms.clear();
    for (const item of this.items) {
      if (!isUnanswered(item)) continue;
      item.client_seq = this.room(item.room_id).next;
      this.room(item.room_id).next += 1;
      item.state = "queued";
    }
    this.save();
  }

  room(roomId) {
    if (!this.rooms.has(roomId)) {
      this.rooms.set(roomId, { next: 1, pausedUntilMs: 0, goingBack: false, expected: null });
    }
    return this.rooms.get(roomId);
  }

  // Items of a room in the order they will stand in it, failed ones included.
  of(roomId) {
    return this.items.filter((item) => item.room_id === roomId);
  }

  numbered(roomId) {
    return this.items.filter((item) => item.room_id === roomId && isUnanswered(item));
  }

  get waiting() {
    return this.items.filter(isUnanswered).length;
  }

  hasRoomFor(count) {
    return this.items.length + count <= ITEMS_MAX;
  }

  add({ roomId, msgId, body, parentId, nowMs }) {
    const room = this.room(roomId);
    this.items.push({
      room_id: roomId,
      msg_id: msgId,
      body,
      parent_id: parentId,
      client_seq: room.next,
      state: "queued",
      written_ms: nowMs,
    });
    room.next += 1;
    this.save();
  }

  // What to send now, in order; it is flying from here on.
  take(nowMs) {
    const frames = [];
    for (const [roomId, room] of this.rooms) {
      if (room.goingBack || room.pausedUntilMs > nowMs) continue;
      const items = this.numbered(roomId).slice(0, WINDOW);
      for (const item of items) {
        if (item.state === "flying") continue;
        item.state = "flying";
        const frame = {
          type: "send_message",
          room_id: roomId,
          client_seq: item.client_seq,
          body: item.body,
          msg_id: item.msg_id,
        };
        frames.push(item.parent_id ? { ...frame, parent_id: item.parent_id } : frame);
      }
    }
    return frames;
  }

  // When `take` has more to give without anything happening, or null.
  nextPauseEndMs(nowMs) {
    const ends = [...this.rooms.values()]
      .map((room) => room.pausedUntilMs)
      .filter((end) => end > nowMs);
    return ends.length ? Math.min(...ends) : null;
  }

  onDisconnected() {
    for (const item of this.items) if (item.state === "flying") item.state = "queued";
    for (const room of this.rooms.values()) {
      Object.assign(room, { goingBack: false, pausedUntilMs: 0, expected: null });
    }
  }

  // The flying record that an answer names. Numbers of flying records never change, so they tell.
  flying({ room_id: roomId, client_seq: clientSeq }) {
    return this.items.find(
      (item) => item.state === "flying" && item.room_id === roomId && item.client_seq === clientSeq,
    );
  }

  // "acknowledged", "unknown" (answered before), or "collision": the log knows this number as
  // another record of this device, so the caller must become another device.
  onAck(ack) {
    const item = this.flying(ack);
    if (!item) return "unknown";
    if (item.msg_id !== ack.msg_id) return "collision";
    Object.assign(item, { state: "acknowledged", op: ack.op, timestamp: ack.timestamp });
    this.goOn(item.room_id);
    this.save();
    return "acknowledged";
  }

  // Acknowledged records of a room up to `op` stand in its timeline, or nobody looks: let go of
  // them.
  settle(roomId, op) {
    this.items = this.items.filter(
      (item) => item.room_id !== roomId || item.state !== "acknowledged" || item.op > op,
    );
  }

  // The record was seen in the room: committed, whatever became of the acknowledgement.
  onSeen(record) {
    const item = this.items.find(
      (each) => each.msg_id === record.msg_id && each.room_id === record.room_id,
    );
    if (!item) return false;
    this.remove(item);
    return true;
  }

  remove(item) {
    this.items.splice(this.items.indexOf(item), 1);
    this.goOn(item.room_id);
    this.save();
  }

  // An error that names a record of ours: "noted", "unknown", or "collision" as above (the number
  // is older than all the log remembers, while ours are within its memory). Of a first number it
  // means that nobody knows whether it was stored: it fails, and the room shows it if it was.
  onError(error, nowMs) {
    const item = this.flying(error);
    if (!item) return "unknown";
    if (error.name === "duplicate_expired" && item.client_seq > 1) return "collision";
    const room = this.room(item.room_id);
    item.state = "queued";
    if (error.name === "sequence_gap") {
      room.expected = error.expected;
    } else if (error.temporary) {
      const delay = Math.max(RETRY_MS_MIN, error.retry_after ?? 0);
      room.pausedUntilMs = Math.max(room.pausedUntilMs, nowMs + delay);
    } else {
      const number = item.client_seq;
      const renames = NAME_REFUSED.includes(error.name);
      const detail = error.detail || error.name;
      Object.assign(item, { state: "failed", client_seq: 0, error: detail, renames });
      if (this.numbered(item.room_id).length === 0) room.next = number;
    }
    room.goingBack = true;
    this.goOn(item.room_id);
    this.save();
    return "noted";
  }

  // Once nothing of the room is flying: take the numbers the log expects, and let `take` start from
  // the first.
  goOn(roomId) {
    const room = this.room(roomId);
    const items = this.numbered(roomId);
    if (!room.goingBack || items.some((item) => item.state === "flying")) return;
    if (items.length && room.expected !== null) {
      const start = Math.min(items[0].client_seq, room.expected);
      items.forEach((item, i) => {
        item.client_seq = start + i;
      });
      room.next = start + items.length;
    }
    Object.assign(room, { goingBack: false, expected: null });
  }

  // Send what was refused once more, behind all others; as `newId` if its msg_id was refused, and
  // what is still here and answers it answers that.
  retry(msgId, newId) {
    const item = this.items.find((each) => each.msg_id === msgId && each.state === "failed");
    if (!item) return;
    const room = this.room(item.room_id);
    if (item.renames) {
      item.msg_id = newId;
      for (const each of this.items) if (each.parent_id === msgId) each.parent_id = newId;
    }
    this.items.splice(this.items.indexOf(item), 1);
    const again = { state: "queued", client_seq: room.next, error: undefined, renames: false };
    this.items.push({ ...item, ...again });
    room.next += 1;
    this.save();
  }

  discard(msgId) {
    const item = this.items.find((each) => each.msg_id === msgId && each.state === "failed");
    if (item) this.items.splice(this.items.indexOf(item), 1);
    this.save();
  }
}
