// One live connection to any node of the site.
//
//      connecting --welcome--> live
//          ^  \                  |
//          |   \--refused        | closed, silent, or told to leave
//          |    (token: stop)    v
//          +---- pause ------ waiting: next node, after a pause that grows with each failed round
//
// A connection that says nothing is asked (ping) and given up when it stays silent: a killed
// machine closes nothing.

import { Ways } from "./ways.js";

const OPEN_MS_MAX = 6000; // until the welcome, whatever carries it
const SILENCE_MS = 5000; // then a ping is sent
const ANSWER_MS_MAX = 4000; // after which the connection is given up
const STALE_PAUSE_MS = 5000; // between two rounds of nodes that are left because they are cut off
const PAUSE_MS_FIRST = 60; // before another node is tried
const PAUSE_MS_ROUND = 250; // after each node was tried once; doubles
const PAUSE_MS_MAX = 5000;
const SPREAD_MS_MAX = 10000; // over which those come whom a node sends to another one

export class Link {
  // hello() -> the first frame; onFrame(frame), onState(state) are called, never from within our
  // methods' callers.
  constructor({ urls, hello, onFrame, onState, ways = new Ways() }) {
    Object.assign(this, { urls, hello, onFrame, onState, ways });
    this.state = { name: "idle", url: null, node: null, carrier: "", retryAtMs: 0, detail: "" };
    this.carried = null; // by one of the ways
    this.turn = 0; // index of the node in use or to try next
    this.failures = 0; // since the last welcome
    this.timer = 0;
    this.heardMs = this.pingedMs = 0;
    this.sentTo = null; // { turn, spread }: where the node that is left sends us
    this.stale = false; // the node says that it is cut off
    this.staleTurn = null; // whose node was left for that first, until one was found that is not
    this.stayedMs = -STALE_PAUSE_MS; // when such a round has led back
  }

  setState(name, more = {}) {
    this.state = {
      name,
      url: this.urls[this.turn % this.urls.length],
      node: null,
      carrier: "",
      retryAtMs: 0,
      detail: "",
      ...more,
    };
    this.onState(this.state);
  }

  // Nodes learned later; the one in use stays in use.
  learn(urls) {
    const current = this.urls[this.turn % this.urls.length];
    this.urls = urls;
    this.staleTurn = null;
    this.turn = Math.max(0, urls.indexOf(current));
  }

  open() {
    if (this.carried) return;
    clearTimeout(this.timer);
    const carried = this.ways.begin(this.urls[this.turn % this.urls.length], {
      onOpen: () => carried.send(this.hello()),
      onFrame: (frame) => this.onMessage(carried, frame),
      onEnd: (reason) => this.lost(carried, reason),
    });
    this.carried = carried;
    this.setState("connecting", { attempt: this.failures });
    this.timer = setTimeout(() => {
      carried.doubt();
      this.lost(carried, "no answer");
    }, OPEN_MS_MAX);
  }

  // Another round at once: the network came back, or the reader pressed the button.
  hurry() {
    if (this.state.name === "waiting") this.open();
  }

  close() {
    this.drop();
    this.setState("idle");
  }

  send(frame) {
    if (this.state.name !== "live") return false;
    this.carried.send(frame);
    return true;
  }

  onMessage(carried, frame) {
    if (carried !== this.carried) return;
    this.heardMs = performance.now();
    if (frame.type === "welcome" && this.state.name === "connecting") {
      this.failures = 0;
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.watch(), SILENCE_MS);
      this.setState("live", { node: frame.node, carrier: carried.words });
    } else if (frame.type === "error" && this.state.name === "connecting" && !frame.temporary) {
      this.refuse(frame);
      return;
    }
    if (frame.type === "next_node") {
      const turn = this.urls.indexOf(frame.url);
      if (turn >= 0) this.sentTo = { turn, spread: Math.min(frame.spread || 0, SPREAD_MS_MAX) };
    }
    if (frame.type === "node_state") {
      this.stale = frame.stale_since !== undefined;
      if (this.stale && this.leaveStale(carried)) return;
    }
    this.onFrame(frame);
  }

  // The node is cut off and serves the past: go to another one, but not round in circles when all
  // of them are, however long a round takes.
  leaveStale(carried) {
    const now = performance.now();
    if (this.urls.length < 2) return false;
    if (this.staleTurn === null) {
      if (now - this.stayedMs < STALE_PAUSE_MS) return false;
      this.staleTurn = this.turn;
    } else if (this.turn - this.staleTurn >= this.urls.length) {
      this.staleTurn = null;
      this.stayedMs = now;
      return false;
    }
    this.lost(carried, "the node is cut off from the others");
    return true;
  }

  // The token is not accepted: trying elsewhere would not help.
  refuse(error) {
    this.drop();
    this.setState("refused", { detail: error.detail || error.name, code: error.code });
  }

  watch() {
    const now = performance.now();
    if (this.heardMs < this.pingedMs) {
      this.lost(this.carried, "the node is silent");
      return;
    }
    if (!this.stale) this.staleTurn = null;
    const silent = now - this.heardMs;
    if (silent >= SILENCE_MS) {
      this.pingedMs = now;
      this.send({ type: "ping" });
    }
    this.timer = setTimeout(
      () => this.watch(),
      silent >= SILENCE_MS ? ANSWER_MS_MAX : SILENCE_MS - silent,
    );
  }

  drop() {
    clearTimeout(this.timer);
    this.carried?.close();
    this.carried = null;
    this.stale = false;
  }

  lost(carried, detail) {
    if (carried !== this.carried) return;
    this.drop();
    const sentTo = this.sentTo;
    this.sentTo = null;
    this.turn = sentTo ? sentTo.turn : this.turn + 1;
    this.failures += 1;
    let pause = this.pauseMs() * (0.75 + Math.random() / 2);
    if (sentTo) pause += sentTo.spread * Math.random();
    this.setState("waiting", { detail, attempt: this.failures, retryAtMs: Date.now() + pause });
    this.timer = setTimeout(() => this.open(), pause);
  }

  pauseMs() {
    const rounds = Math.floor(this.failures / this.urls.length);
    if (this.failures % this.urls.length !== 0 || rounds === 0) return PAUSE_MS_FIRST;
    return Math.min(PAUSE_MS_MAX, PAUSE_MS_ROUND * 2 ** (rounds - 1));
  }
}
