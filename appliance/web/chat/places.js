// Rooms that several sites share: where each message stands, and which sites have it.
//
// An op counts what this site stored. People are shown the order that is the same at every site:
// by lamport, then by id.

const ANSWER_MS_MAX = 5000; // then it is asked again: no node carried the room
const ASKS_MAX = 6; // of one range; where nothing is known of it, there is no answer

function byPlace(a, b) {
  if (a.lamport !== b.lamport) return a.lamport - b.lamport;
  if (a.id === b.id) return a.op - b.op;
  return a.id < b.id ? -1 : 1;
}

// What is known of one room.
export class Places {
  constructor() {
    this.site = ""; // the name of this site; none: the room is not shared, as far as we know
    this.sites = []; // the others
    this.places = new Map(); // op -> place, as a frame tells it
  }

  get shared() {
    return this.site !== "";
  }

  take({ site = "", sites = "", messages }) {
    this.site = site;
    this.sites = sites.split(" ").filter(Boolean);
    for (const place of messages) this.places.set(place.op, place);
  }

  of(op) {
    return this.places.get(op);
  }

  // Ops that are not held any more are fetched again with their places.
  keep(first, last) {
    for (const op of this.places.keys()) if (op < first || op > last) this.places.delete(op);
  }

  // Records in the order of all sites. One that has no place stands behind those that this site
  // stored before it: rules of the room have none, new messages get theirs in a moment.
  inOrder(records) {
    if (!this.shared) return records;
    let behind = { lamport: 0, id: "", op: 0 };
    const keyed = records.map((record) => {
      const place = this.of(record.op);
      const key = place
        ? { lamport: place.lamport, id: place.message_id, op: record.op }
        : { ...behind, op: record.op };
      if (byPlace(behind, key) < 0) behind = key;
      return { ...key, record };
    });
    return keyed.sort(byPlace).map((each) => each.record);
  }

  // The other sites, and whether every one of these ops is in their logs; none for what was said
  // elsewhere.
  ticks(ops) {
    const places = ops.map((op) => this.of(op));
    if (places.some((place) => place?.site !== this.site)) return [];
    return this.sites.map((site) => ({
      site,
      has: places.every((place) => (place.acknowledged ?? "").split(" ").includes(site)),
    }));
  }
}

// Asks for the places of what is shown; the node that carries the room answers, if there is one.
export class PlacesWanted {
  constructor(chat) {
    this.chat = chat;
    this.open = new Map(); // room_id -> { request, timer }
  }

  stop() {
    for (const { timer } of this.open.values()) clearTimeout(timer);
    this.open.clear();
  }

  // An answer has no request of its own; only a refusal names it, and needs no words.
  ask(room, fromOp, untilOp, asks = 1) {
    this.close(room.id);
    if (untilOp < fromOp) return;
    const request = this.chat.expect(() => {});
    const frame = { type: "federation_request", room_id: room.id, from_op: fromOp };
    if (!this.chat.link.send({ ...frame, until_op: untilOp, request })) return;
    const timer = setTimeout(() => {
      if (asks < ASKS_MAX) this.ask(room, fromOp, untilOp, asks + 1);
      else this.close(room.id);
    }, ANSWER_MS_MAX);
    this.open.set(room.id, { request, timer });
  }

  askAll(room) {
    this.ask(room, room.timeline.first, room.timeline.last);
  }

  close(roomId) {
    const asked = this.open.get(roomId);
    if (!asked) return;
    clearTimeout(asked.timer);
    this.chat.waiting.delete(asked.request);
    this.open.delete(roomId);
  }

  onEvent(frame) {
    const room = this.chat.rooms.get(frame.room_id);
    if (!room) return;
    const before = room.places.shared;
    const asked = this.open.has(room.id);
    this.close(room.id);
    room.places.take(frame);
    room.places.keep(room.timeline.first, room.timeline.newest);
    if (room.places.shared && !before && !asked) this.askAll(room); // it is shared from now on
  }
}
