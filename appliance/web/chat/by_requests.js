// A conversation in plain HTTP: what is said goes by POST, what is heard comes by a stream of
// events or by one poll after the other.
//
//      hello --POST--> a secret --+--> GET events, or GET poll again and again --> frames
//                                 +--> POST frames, one request at a time

const SECRET = "tigerchat-session";
const OPENED = 201;
const TAKEN = 202;
const ELSEWHERE = 421; // another process of the node has the conversation
const ASKS_MAX = 16; // until the right one is met
const STALL_MS_MAX = 4000; // for the first piece of a stream: something on the way keeps it back
const EVENT_SIZE_MAX = 16 * 2 ** 20;

class ByRequests {
  static opensByAnswer = false;

  static couldReach() {
    return true;
  }

  constructor(url, { onOpen, onFrame, onEnd }) {
    Object.assign(this, { onFrame, onEnd });
    this.place = url.replace(/^ws/, "http").replace(/\/v1$/, "/v1/session");
    this.headers = {};
    this.outgoing = [];
    this.isTelling = this.isDeaf = false;
    this.over = new AbortController();
    queueMicrotask(() => this.onEnd !== null && onOpen()); // the hello finds out
  }

  async ask(path, init) {
    for (let asks = 1; ; asks += 1) {
      const { headers, over } = this;
      const init_ = { headers, signal: over.signal, cache: "no-store", ...init };
      const answer = await fetch(this.place + path, init_);
      if (answer.status !== ELSEWHERE || asks === ASKS_MAX) return answer;
    }
  }

  // The first one, the hello, opens the conversation.
  send(frame) {
    this.outgoing.push(JSON.stringify(frame));
    if (!this.isTelling) this.untilOver(() => this.tell());
  }

  async untilOver(act) {
    try {
      await act();
    } catch (error) {
      this.end(error.message);
    }
  }

  async tell() {
    this.isTelling = true;
    while (this.outgoing.length > 0) {
      if (this.headers[SECRET] === undefined) await this.begin(this.outgoing.shift());
      else {
        const body = this.outgoing.join("\n");
        this.outgoing = [];
        const answer = await this.ask("/frames", { method: "POST", body });
        if (answer.status !== TAKEN) throw new Error(`HTTP ${answer.status}`);
      }
    }
    this.isTelling = false;
  }

  async begin(body) {
    const answer = await this.ask("", { method: "POST", body });
    const batch = await answer.json();
    if (batch.error) throw new Error(batch.error.name);
    if (answer.status === OPENED) this.headers = { [SECRET]: answer.headers.get(SECRET) };
    this.take(batch);
    if (this.onEnd !== null) this.untilOver(() => this.hear(batch.next));
  }

  take({ frames, closed }) {
    for (const frame of frames) if (this.onEnd !== null) this.onFrame(frame);
    if (closed) this.end(closed.name);
  }

  async read(path) {
    const answer = await this.ask(path, {});
    if (!answer.ok) throw new Error(`HTTP ${answer.status}`);
    return answer;
  }

  end(reason) {
    const { onEnd } = this;
    this.close();
    onEnd?.(reason || "connection closed", this.isDeaf);
  }

  close() {
    if (this.onEnd === null) return;
    this.onEnd = null;
    this.over.abort();
    const { headers } = this;
    if (headers[SECRET] !== undefined)
      fetch(this.place, { method: "DELETE", headers, keepalive: true }).catch(() => {});
  }
}

export class ByEvents extends ByRequests {
  static words = "requests and a stream of events";

  async hear(after) {
    this.isDeaf = true; // until the first piece
    const stalled = setTimeout(() => this.end("the stream of events does not come"), STALL_MS_MAX);
    try {
      const answer = await this.read(`/events?after=${after}`);
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        clearTimeout(stalled);
        this.isDeaf = false;
        const events = (rest + value).split("\n\n");
        rest = events.pop();
        if (rest.length > EVENT_SIZE_MAX) throw new Error("an event that is too large");
        for (const event of events) this.onEvent(event.split("\n"));
      }
    } finally {
      clearTimeout(stalled);
    }
    this.end("the stream of events broke off");
  }

  onEvent(lines) {
    const data = lines.find((line) => line.startsWith("data: "));
    if (data === undefined) return; // a sign of life
    const told = JSON.parse(data.slice("data: ".length));
    if (lines.includes("event: close")) this.take({ frames: [], closed: told });
    else this.take({ frames: [told] });
  }
}

export class ByPolls extends ByRequests {
  static words = "requests";

  async hear(after) {
    let next = after;
    while (this.onEnd !== null) {
      const batch = await (await this.read(`/poll?after=${next}`)).json();
      next = batch.next;
      this.take(batch);
    }
  }
}
