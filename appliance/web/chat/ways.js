// By what a conversation with a node is carried: the best of these that its network lets through.
//
//      WebTransport   a stream and datagrams on QUIC: one lost packet delays no other conversation
//      WebSocket      on TCP
//      events, polls  plain requests, where nothing else passes
//
// A way is a class. `couldReach(url)`: whether there is any sense in trying. An instance begins to
// open at once and tells of it later, never from within its constructor: onOpen(); onFrame(frame);
// onEnd(reason, isDeaf), once, after which it tells nothing; deaf is one by which nothing comes
// from this network. `send(frame)` is for one that is open, `close()` ends it without a word.
// `words` name it; `opensByAnswer`: whether the node has answered when it opens.

import { ByEvents, ByPolls } from "./by_requests.js";
import { ByWebSocket } from "./by_websocket.js";
import { ByWebTransport } from "./by_webtransport.js";

const WAYS = [ByWebTransport, ByWebSocket, ByEvents, ByPolls]; // the best one first
const HEAD_START_MS = 1500; // of a way before the next one is tried beside it
const REST_MS = 600_000; // of one that did not open while the node was reached by another
const DOUBT_MS = 60_000; // of one that opened and carried nothing

// What is known of the network: which ways are not worth the time.
export class Ways {
  constructor(ways = WAYS) {
    this.ways = ways;
    this.restUntil = new Map(); // way -> ms of performance.now
  }

  // A conversation with the node at `url`, a WebSocket address, which tells as one way does.
  begin(url, told) {
    return new Carried(this, url, told);
  }

  rest(way, ms) {
    this.restUntil.set(way, performance.now() + ms);
  }

  // Those of `tried` that are better than `way`, which has opened first.
  restBetter(way, tried) {
    const place = this.ways.indexOf(way);
    for (const other of tried) if (this.ways.indexOf(other) < place) this.rest(other, REST_MS);
  }

  // Those to try, in this order; all of them where none is left.
  worthTrying(url) {
    const possible = this.ways.filter((way) => way.couldReach(url));
    const now = performance.now();
    const rested = possible.filter((way) => !(this.restUntil.get(way) > now));
    return rested.length > 0 ? rested : possible;
  }
}

// One conversation: ways are tried beside each other, each with a head start before the next, and
// the first that opens carries it.
class Carried {
  constructor(ways, url, told) {
    Object.assign(this, { ways, url, told });
    this.left = ways.worthTrying(url);
    this.tried = new Map(); // way -> what opens
    this.late = []; // ways that failed, or had not opened when the chosen one did
    this.way = this.carrier = null; // the chosen one
    this.hasHeard = false;
    this.timer = 0;
    this.tryNext();
  }

  get words() {
    return this.way?.words ?? "";
  }

  tryNext() {
    clearTimeout(this.timer);
    const way = this.left.shift();
    if (this.left.length > 0) this.timer = setTimeout(() => this.tryNext(), HEAD_START_MS);
    const carrier = new way(this.url, {
      onOpen: () => this.choose(way),
      onFrame: (frame) => this.onFrame(frame),
      onEnd: (reason, isDeaf = false) => this.onEnd(way, reason, isDeaf),
    });
    this.tried.set(way, carrier);
  }

  choose(way) {
    clearTimeout(this.timer);
    this.way = way;
    this.carrier = this.tried.get(way);
    this.tried.delete(way);
    this.late.push(...this.tried.keys());
    this.closeOthers();
    this.told.onOpen();
  }

  onEnd(way, reason, isDeaf) {
    if (way !== this.way) {
      this.tried.delete(way);
      this.late.push(way);
      if (this.left.length > 0) this.tryNext();
      if (this.tried.size > 0) return;
    } else if (isDeaf || !this.hasHeard) this.doubt();
    this.told.onEnd(reason);
  }

  onFrame(frame) {
    if (!this.hasHeard) this.ways.restBetter(this.way, this.late); // it is the node that answers
    this.hasHeard = true;
    this.told.onFrame(frame);
  }

  send(frame) {
    this.carrier.send(frame);
  }

  // It has opened and nothing came: another way is better, for a while. That a request got no
  // answer says nothing of the way: the node may be dead.
  doubt() {
    if (this.way?.opensByAnswer || this.hasHeard) this.ways.rest(this.way, DOUBT_MS);
  }

  closeOthers() {
    for (const carrier of this.tried.values()) carrier.close();
    this.tried.clear();
  }

  close() {
    clearTimeout(this.timer);
    this.closeOthers();
    this.carrier?.close();
  }
}
