// What this user does with what people share: asks a node for it, and keeps what it answers.
//
// Nothing is shown before a node has said it: an edit is seen when its event comes back. None of it
// needs a quorum, so it goes on when messages wait.

import { TYPING_MS_MAX } from "./objects.js";

const TYPING_EVERY_MS = 3000; // while somebody writes
const MARK_MS = 300; // many messages are read at once
const AWAY_MS = 15_000; // behind other windows

export class Shared {
  constructor(chat) {
    this.chat = chat;
    this.exists = false; // until a node said so: a site may have been formatted without objects
    this.profiles = new Map(); // author -> { name, about, picture }
    this.said = ""; // our presence, on this connection
    this.awayTimer = 0;
    this.typed = { room: null, atMs: 0 };
    this.timers = new Set();
    this.onVisible = () => this.look();
    document.addEventListener("visibilitychange", this.onVisible);
  }

  stop() {
    document.removeEventListener("visibilitychange", this.onVisible);
    clearTimeout(this.awayTimer);
    for (const timer of this.timers) clearTimeout(timer);
  }

  later(ms, act) {
    const timer = setTimeout(() => {
      this.timers.delete(timer);
      act();
    }, ms);
    this.timers.add(timer);
  }

  // --- edits -----------------------------------------------------------------------------------

  // `then` gets the refusal in words, "" when it is done.
  edit(frame, then = (refusal) => this.note(refusal)) {
    this.chat.ask(frame, (answer) => {
      const lost = answer.name === "connection_lost";
      if (answer.type === "object_ack") then("");
      else then(lost ? "Not connected: nothing was changed." : answer.detail || answer.name);
    });
  }

  note(refusal) {
    if (refusal) this.chat.notice = refusal;
  }

  // `texts`: [["topic" or "description", text], ...], one after the other until one is refused.
  describe(room, [first, ...others], then) {
    if (first === undefined) {
      then("");
      return;
    }
    const [type, text] = first;
    this.edit({ type, room_id: room.id, text }, (refusal) =>
      refusal ? then(refusal) : this.describe(room, others, then),
    );
  }

  pin(room, msgId, present) {
    this.edit({ type: "pin", room_id: room.id, msg_id: msgId, present });
  }

  // Our reaction, or not any more.
  react(room, msgId, emoji) {
    const found = room.shared.of(msgId).reactions.find((each) => each.emoji === emoji);
    const present = !found?.authors.includes(this.chat.author);
    this.edit({ type: "reaction", room_id: room.id, msg_id: msgId, emoji, present });
  }

  // A profile is set as a whole: what else is in it stays, so it is set where it is known.
  setProfile({ name, picture }, then) {
    const { about } = this.profiles.get(this.chat.author);
    this.edit({ type: "profile", name, about, picture }, then);
  }

  // It is told with the state of any room.
  get knowsOwnProfile() {
    return this.exists && this.profiles.has(this.chat.author);
  }

  nameOf(author) {
    return this.profiles.get(author)?.name || author;
  }

  pictureOf(author) {
    return this.profiles.get(author)?.picture ?? "";
  }

  // --- what is only said -----------------------------------------------------------------------

  onLive() {
    this.said = "";
    this.typed.room = null;
    this.look();
  }

  look() {
    clearTimeout(this.awayTimer);
    if (document.visibilityState === "visible") this.say("online");
    else if (this.said === "") this.say("away");
    else this.awayTimer = setTimeout(() => this.say("away"), AWAY_MS);
  }

  say(state) {
    if (this.said === state || this.chat.link.state.name !== "live") return;
    this.said = state;
    this.chat.ask({ type: "presence", state }, (answer) => {
      if (answer.type === "object_ack") this.exists = true;
      else if (answer.name === "object_refused") this.exists = false;
    });
  }

  // The text of a message to be is this now.
  typing(room, text) {
    if (!this.exists) return;
    const now = performance.now();
    const was = this.typed.room;
    if (was && (was !== room || text === "")) this.sayTyping(was, false);
    const due = was !== room || now - this.typed.atMs >= TYPING_EVERY_MS;
    if (text !== "" && due) {
      this.typed.atMs = now;
      this.sayTyping(room, true);
    }
    this.typed.room = text === "" ? null : room;
  }

  sayTyping(room, present) {
    this.chat.link.send({ type: "typing", room_id: room.id, present });
  }

  // --- what was read -----------------------------------------------------------------------------

  markRead(room) {
    if (!this.exists || room.marking || room.read <= room.shared.marker) return;
    room.marking = true;
    this.later(MARK_MS, () => {
      const op = room.read;
      this.edit({ type: "read_marker", room_id: room.id, op }, (refusal) => {
        room.marking = false;
        if (refusal) return; // said again when more was read
        room.shared.marker = Math.max(room.shared.marker, op);
        this.markRead(room);
      });
    });
  }

  // --- what nodes tell -------------------------------------------------------------------------

  onState(frame) {
    const room = this.chat.rooms.get(frame.room_id);
    if (!room) return;
    this.exists = true;
    room.shared.replace(frame);
    for (const item of frame.items) if (item.kind === "profile") this.onProfile(item);
    if (frame.before === undefined) this.onMarker(room);
    this.wantOlder(room);
  }

  onEvent(event) {
    if (event.kind === "profile") {
      this.onProfile(event);
      return;
    }
    const room = this.chat.rooms.get(event.room_id);
    if (!room || (event.kind === "read_marker" && event.author !== this.chat.author)) return;
    room.shared.apply(event, performance.now());
    if (event.kind === "read_marker") this.onMarker(room);
    if (event.kind === "typing") this.later(TYPING_MS_MAX + 50, () => this.chat.onChange());
  }

  onProfile({ author, text: name = "", about, picture }) {
    this.profiles.set(author, { name, about, picture });
  }

  // What another device has read is read here too. Where ours has only been assumed, as nothing was
  // known in this browser, the marker knows better.
  onMarker(room) {
    const { marker } = room.shared;
    if (room.assumed && marker) room.read = marker;
    room.assumed = false;
    if (marker > room.read) this.chat.noteRead(room, marker);
    else this.markRead(room);
  }

  // Reactions to older messages are told when these are shown.
  wantOlder(room) {
    const { cursor } = room.shared;
    const oldest = room.timeline.records[0];
    if (!cursor || !oldest || oldest.msg_id >= cursor || room.wanted === cursor) return;
    room.wanted = cursor;
    const frame = { type: "object_request", room_id: room.id, before: cursor };
    this.chat.ask(frame, (answer) => {
      room.wanted = null;
      if (answer.type === "object_state" && room.shared.cursor === cursor) this.onState(answer);
    });
  }

  // Who types in `room`, but for us.
  typers(room) {
    const typing = room.shared.typingNow(performance.now());
    return typing.filter((author) => author !== this.chat.author);
  }
}
