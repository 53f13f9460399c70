// The page's model of a chat: rooms with their timelines, what is waiting to be acknowledged, and
// the connection.
//
// A room is followed from the newest op we know of. What came while we were away is fetched from
// there on: by the subscription when it is little, by going to the newest page of history when it
// is much. The view reads the fields of this object and is told by `onChange` that something moved.

import { Directory } from "./directory.js";
import { claimDevice, mayModerate, userOf, uuidOrdered, uuidRandom } from "./identity.js";
import { Link } from "./link.js";
import { RoomObjects } from "./objects.js";
import { Outbox } from "./outbox.js";
import { Places, PlacesWanted } from "./places.js";
import { Shared } from "./shared.js";
import { splitText } from "./text.js";
import { Timeline } from "./timeline.js";

export const KIND_MESSAGE = 0;
export const KIND_ROOM_CREATE = 4;
export const KIND_ROOM_POLICY = 5;
export const KIND_FEDERATED = 6;
export const KIND_IMPORTED = 10;

const PAGE = 60; // records asked for at once
const CATCH_UP_MAX = 1000; // records missed that are still fetched one by one
const ROOMS_MAX = 500; // rooms listed
const ROOMS_PAGE = 250;
const ROOMS_EVERY_MS = [3000, 20000]; // the list is asked for again: of few rooms, of many
const ROOMS_EVERY_MS_EACH = 50;
const FOLLOWED_MAX = 64; // rooms followed live
const RETRY_MS_MIN = 250; // after a refusal for the moment
const DIRECTORY_EVERY_MS = 60000;
const LOST = { type: "error", name: "connection_lost", detail: "connection lost", temporary: true };

export class Chat {
  constructor({ token, urls, onChange }) {
    this.token = token;
    this.user = userOf(token) ?? "";
    this.onChange = onChange;
    this.rooms = new Map(); // room_id -> room, as made by `known`
    this.openId = null;
    this.told = new Map(); // room_id -> its newest room_state since the list of rooms was asked for
    this.listed = false; // the rooms were told at least once
    this.welcome = null;
    this.notice = "";
    this.outbox = new Outbox({ storage: sessionStorage, key: `tigerchat.outbox.${this.user}` });
    this.link = new Link({
      urls,
      hello: () => ({ type: "hello", token: this.token, client_id: this.outbox.clientId }),
      onFrame: (frame) => this.onFrame(frame),
      onState: (state) => this.onLink(state),
    });
    this.waiting = new Map(); // request -> what to do with its answer
    this.requests = 0;
    this.connection = 0; // counts connections, so that late timers know theirs is over
    this.pauseTimer = 0;
    this.listTimer = 0;
    this.directoryTimer = 0;
    this.directory = new Directory(""); // until the site's key is known
    this.shared = new Shared(this);
    this.wantedPlaces = new PlacesWanted(this);
  }

  get author() {
    return this.welcome?.author ?? this.user;
  }

  async start() {
    if (!this.outbox.clientId || !(await claimDevice(this.outbox.clientId))) {
      if (this.outbox.clientId) this.outbox.items = []; // those of the tab we were copied from
      await this.newDevice();
    }
    this.link.open();
  }

  stop() {
    clearTimeout(this.listTimer);
    clearTimeout(this.pauseTimer);
    clearTimeout(this.directoryTimer);
    this.shared.stop();
    this.wantedPlaces.stop();
    this.link.close();
  }

  // The site's nodes, and the key that vouches for its directories.
  learn(urls, key) {
    this.link.learn(urls);
    this.directory = new Directory(key);
    this.askDirectory();
  }

  // Go by the farm's directory, if it is one.
  askDirectory() {
    clearTimeout(this.directoryTimer);
    if (!this.directory.usable || this.link.state.name !== "live") return;
    this.directoryTimer = setTimeout(() => this.askDirectory(), DIRECTORY_EVERY_MS);
    this.ask({ type: "directory_request" }, async (answer) => {
      if (answer.type !== "directory") return; // an older node, or one that is gone
      const { directory } = this;
      if (await directory.take(answer.signed))
        this.link.learn(directory.order(this.link.state.url, this.link.urls));
      else if (directory.refused !== "")
        this.notice = `This node's directory is refused: ${directory.refused}.`;
      this.onChange();
    });
  }

  async newDevice() {
    const clientId = uuidRandom();
    await claimDevice(clientId);
    this.outbox.adopt(clientId);
  }

  // --- asking ------------------------------------------------------------------------------------

  // Send `frame`; `then` gets its answer, or the error. What is refused for the moment is asked
  // again.
  ask(frame, then) {
    const connection = this.connection;
    const request = this.expect((answer) => {
      if (answer.type !== "error" || !answer.temporary || answer === LOST) return then(answer);
      return setTimeout(
        () => (connection === this.connection ? this.ask(frame, then) : then(LOST)),
        Math.max(RETRY_MS_MIN, answer.retry_after ?? 0),
      );
    });
    if (!this.link.send({ ...frame, request })) this.answer(request, LOST);
  }

  // The request of a frame whose answer `then` gets.
  expect(then) {
    this.requests += 1;
    const request = String(this.requests);
    this.waiting.set(request, then);
    return request;
  }

  answer(request, frame) {
    const then = this.waiting.get(request);
    this.waiting.delete(request);
    if (then) then(frame);
    return then !== undefined;
  }

  onLink(state) {
    if (state.name === "live") this.onLive();
    else {
      this.connection += 1;
      clearTimeout(this.listTimer);
      this.outbox.onDisconnected();
      this.wantedPlaces.stop();
      for (const request of [...this.waiting.keys()]) this.answer(request, LOST);
      for (const room of this.rooms.values())
        Object.assign(room, { followed: false, loading: null });
    }
    this.onChange();
  }

  onLive() {
    this.flush();
    this.shared.onLive();
    if (this.rooms.has(this.openId)) this.follow(this.rooms.get(this.openId));
    this.listRooms();
    this.askDirectory();
  }

  onFrame(frame) {
    if (frame.request === undefined || !this.answer(frame.request, frame)) {
      const handlers = {
        welcome: this.onWelcome,
        message_ack: this.onAck,
        message_event: this.onEvent,
        room_state: this.onRoomState,
        object_state: (state) => this.shared.onState(state),
        object_event: (event) => this.shared.onEvent(event),
        federation_event: (event) => this.wantedPlaces.onEvent(event),
        error: this.onError,
      };
      handlers[frame.type]?.call(this, frame);
    }
    this.onChange();
  }

  onWelcome(frame) {
    this.welcome = frame;
  }

  // Whether a room is closed, what it is called, and what goes by the name it was made under: told
  // when that changes, behind `subscribed`, and before a list of rooms of those in it that are
  // closed or were renamed.
  onRoomState(frame) {
    this.told.set(frame.room_id, frame);
    const { name, closed, may_moderate: mayModerate, may_send: maySend } = frame;
    Object.assign(this.rooms.get(frame.room_id) ?? {}, { name, closed, mayModerate, maySend });
  }

  // Have the room closed, or open again; what becomes of it is told to all who follow it.
  closeRoom(room, closed) {
    this.ask({ type: "close_room", room_id: room.id, closed }, (frame) => {
      if (frame.type === "room_state") this.onRoomState(frame);
      else if (frame !== LOST) this.notice = frame.detail || frame.name;
      this.onChange();
    });
  }

  // Have the room called otherwise; `done` hears why it is not.
  renameRoom(room, name, done) {
    this.ask({ type: "rename_room", room_id: room.id, name }, (frame) => {
      if (frame.type === "room_state") this.onRoomState(frame);
      const lost = frame === LOST && "Not connected: perhaps nothing was changed.";
      done(frame.type === "room_state" ? "" : lost || frame.detail || frame.name);
      this.onChange();
    });
  }

  // --- rooms -------------------------------------------------------------------------------------

  known(roomId, name) {
    if (!this.rooms.has(roomId)) {
      this.rooms.set(roomId, {
        id: roomId,
        name,
        timeline: new Timeline(),
        loaded: false,
        loading: null,
        followed: false,
        read: this.readMark(roomId),
        shared: new RoomObjects(),
        places: new Places(),
        mayModerate: mayModerate(this.token, name),
        closed: false,
        maySend: true, // as far as was told: a token may allow less
        newFrom: 0,
        typed: "",
        answering: null,
        error: "",
      });
    }
    return this.rooms.get(roomId);
  }

  readKey(roomId) {
    return `tigerchat.read.${this.user}.${roomId}`;
  }

  readMark(roomId) {
    return Number(localStorage.getItem(this.readKey(roomId)) ?? 0);
  }

  // The reader has seen the newest of the open room.
  markRead(room) {
    if (room.read >= room.timeline.newest) return;
    this.noteRead(room, room.timeline.newest);
    this.shared.markRead(room);
    this.onChange();
  }

  noteRead(room, op) {
    room.read = op;
    localStorage.setItem(this.readKey(room.id), String(op));
  }

  unread(room) {
    return Math.max(0, room.timeline.newest - room.read);
  }

  listRooms(after = undefined, count = 0) {
    clearTimeout(this.listTimer);
    this.told.clear();
    this.ask(
      { type: "list_rooms", limit: ROOMS_PAGE, ...(after === undefined ? {} : { after }) },
      (frame) => {
        if (frame.type !== "rooms") return;
        for (const { room_id: roomId, name, message_count: newest } of frame.rooms) {
          const room = this.known(roomId, name);
          Object.assign(room, { name, closed: this.told.get(roomId)?.closed === true });
          room.mayModerate = this.told.get(roomId)?.may_moderate ?? room.mayModerate;
          room.maySend = this.told.get(roomId)?.may_send ?? true;
          this.catchUp(room, newest);
        }
        this.welcomeNewcomer();
        this.listed = true;
        const total = count + frame.rooms.length;
        if (frame.next !== undefined && total < ROOMS_MAX) this.listRooms(frame.next, total);
        else this.listLater();
      },
    );
  }

  listLater() {
    const [least, most] = ROOMS_EVERY_MS;
    const pause = Math.min(most, Math.max(least, this.rooms.size * ROOMS_EVERY_MS_EACH));
    const hidden = document.visibilityState === "hidden";
    this.listTimer = setTimeout(() => this.listRooms(), hidden ? most : pause);
  }

  // Who comes for the first time has not missed all that was ever said; what was read elsewhere is
  // told later.
  welcomeNewcomer() {
    const key = `tigerchat.met.${this.user}`;
    if (this.listed || localStorage.getItem(key)) return;
    localStorage.setItem(key, "1");
    for (const room of this.rooms.values()) {
      room.assumed = room.id !== this.openId;
      room.read = room.timeline.newest;
    }
  }

  // The list says that a room has reached op `newest`.
  catchUp(room, newest) {
    const missed = newest - room.timeline.newest;
    if (!room.loaded && missed > 0) room.timeline.reset(newest);
    if (room.loaded && missed > CATCH_UP_MAX) this.forget(room);
    if (room.id === this.openId || this.followedCount() < this.followedMax()) this.follow(room);
  }

  // Drop what is held of a room; it is fetched anew from its newest end.
  forget(room) {
    room.timeline.reset(room.timeline.newest);
    Object.assign(room, { loaded: false, loading: null, followed: false });
  }

  followedCount() {
    return [...this.rooms.values()].filter((room) => room.followed).length;
  }

  followedMax() {
    const allowed = this.welcome === null ? 1 : this.welcome.limits.subscriptions_max;
    return Math.min(FOLLOWED_MAX, allowed - 1); // one is kept for the open room
  }

  // Live from here on: from the newest op we hold, or, holding nothing, from the newest there is.
  follow(room) {
    if (room.followed) return;
    room.followed = true;
    const resuming = room.loaded;
    const since = resuming ? { since_op: room.timeline.newest } : {};
    const epoch = room.epoch === undefined ? {} : { epoch: room.epoch };
    this.ask({ type: "subscribe_room", room_id: room.id, ...since, ...epoch }, (frame) => {
      if (frame.type !== "subscribed") {
        room.followed = false;
        if (frame !== LOST) room.error = frame.detail || frame.name;
        return;
      }
      Object.assign(room, { error: "", epoch: frame.epoch, closed: false, maySend: true });
      if (!resuming || frame.status !== "recovered") {
        Object.assign(room, { loaded: false, loading: null });
        room.timeline.reset(frame.next_op - 1);
      }
      if (room.id === this.openId && !room.loaded) this.loadOlder(room);
      if (room.loaded) this.wantedPlaces.askAll(room);
    });
  }

  open(roomId) {
    const room = this.rooms.get(roomId);
    if (!room) return;
    this.openId = roomId;
    room.newFrom = this.unread(room) ? room.read + 1 : 0;
    localStorage.setItem(`tigerchat.open.${this.user}`, roomId);
    if (this.link.state.name === "live") {
      if (room.followed && !room.loaded) this.loadOlder(room);
      else this.follow(room);
    }
    this.onChange();
  }

  // The room this user opened last, in this tab or any other.
  lastOpen() {
    return localStorage.getItem(`tigerchat.open.${this.user}`);
  }

  create(name, done) {
    this.ask({ type: "create_room", name }, (frame) => {
      if (frame.type === "room") {
        this.known(frame.room_id, frame.name);
        this.open(frame.room_id);
      }
      done(frame.type === "room" ? "" : frame.detail || frame.name);
    });
  }

  // --- history -----------------------------------------------------------------------------------

  loadOlder(room) {
    const { timeline } = room;
    if (room.loading || (room.loaded && timeline.oldestReached)) return;
    this.loadPage(room, { until_op: timeline.first - 1, backward: true });
  }

  loadNewer(room) {
    if (room.loading || room.timeline.live) return;
    this.loadPage(room, { from_op: room.timeline.last + 1 });
  }

  loadPage(room, range) {
    const backward = range.backward === true;
    if (backward && range.until_op < 1) {
      Object.assign(room, { loaded: true });
      room.timeline.oldestReached = true;
      return;
    }
    const mine = (room.loading = { backward });
    this.ask({ type: "snapshot_request", room_id: room.id, limit: PAGE, ...range }, (frame) => {
      if (room.loading !== mine) return; // the reader went elsewhere
      room.loading = null;
      if (frame.type !== "snapshot_chunk") {
        if (frame !== LOST) room.error = frame.detail || frame.name;
        return;
      }
      room.loaded = true;
      room.timeline.addPage(frame.messages, frame.has_more, backward);
      for (const record of frame.messages) this.outbox.onSeen({ ...record, room_id: room.id });
      this.shared.wantOlder(room);
      const ops = frame.messages.map((record) => record.op);
      if (ops.length) this.wantedPlaces.ask(room, Math.min(...ops), Math.max(...ops));
    });
  }

  // Go to a message of the room, fetching what lies between.
  seek(room, msgId) {
    room.seeking = msgId;
    this.onChange();
  }

  // From history back to the newest end.
  jumpToNewest(room) {
    if (room.timeline.live) return;
    const { followed } = room;
    this.forget(room);
    room.followed = followed;
    this.loadOlder(room);
  }

  onEvent(record) {
    const room = this.rooms.get(record.room_id);
    if (!room) return;
    this.outbox.onSeen(record);
    room.shared.typing.delete(record.author);
    if (!room.loaded && room.loading === null && record.op > room.timeline.newest) {
      room.timeline.reset(record.op); // nothing of it is shown: only count
    } else if (room.timeline.addLive(record) === "gap") {
      room.followed = false; // never expected: ask again from where we are
      this.follow(room);
    }
    if (record.author === this.welcome?.author && room.read === record.op - 1) this.markRead(room);
  }

  // --- writing -----------------------------------------------------------------------------------

  // Queue `text` for `room`; longer than a record, it becomes several, threaded to the first (or to
  // what it answers).
  write(room, text, parentId = null) {
    const parts = splitText(text);
    if (!this.outbox.hasRoomFor(parts.length)) return false;
    const firstId = uuidOrdered();
    parts.forEach((body, i) =>
      this.outbox.add({
        roomId: room.id,
        msgId: i === 0 ? firstId : uuidOrdered(),
        body,
        parentId: i === 0 ? parentId : firstId,
        nowMs: Date.now(),
      }),
    );
    this.flush();
    this.onChange();
    return true;
  }

  flush() {
    clearTimeout(this.pauseTimer);
    if (this.link.state.name !== "live") return;
    for (const frame of this.outbox.take(Date.now())) this.link.send(frame);
    const end = this.outbox.nextPauseEndMs(Date.now());
    if (end !== null)
      this.pauseTimer = setTimeout(() => this.flush(), Math.max(20, end - Date.now()));
  }

  onAck(ack) {
    const outcome = this.outbox.onAck(ack);
    if (outcome === "collision") this.startOver();
    if (outcome !== "acknowledged") return;
    const room = this.rooms.get(ack.room_id);
    const shown = room && room.followed && room.loaded && room.timeline.live;
    this.outbox.settle(ack.room_id, shown ? room.timeline.newest : Infinity);
    this.flush();
  }

  retry(msgId) {
    this.outbox.retry(msgId, uuidOrdered());
    this.flush();
    this.onChange();
  }

  discard(msgId) {
    this.outbox.discard(msgId);
    this.onChange();
  }

  // The next message written in `room` answers `text`.
  reply(room, text) {
    room.answering = text;
    this.onChange();
  }

  dismiss() {
    this.notice = "";
    this.onChange();
  }

  async startOver() {
    this.link.close();
    await this.newDevice();
    this.link.open();
  }

  onError(error) {
    const outcome = this.outbox.onError(error, Date.now());
    if (outcome === "collision") this.startOver();
    else if (outcome === "noted") this.flush();
    else if (["token_expired", "token_invalid", "token_revoked"].includes(error.name))
      this.link.refuse(error);
    else if (error.name !== "closing") this.notice = error.detail || error.name;
  }
}
