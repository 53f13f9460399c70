// What the console's node tells each second, and what it told before.
//
//      checking --signed in--> following --silence--> stale --event--> following
//          \--401--> outside          \--closed--> checking, after a pause

const POINTS_MAX = 300; // of a curve: as many as the node keeps
const SILENCE_MS_MAX = 3500; // then what is shown is called old
const PAUSE_MS = 1000; // before a lost stream is asked for again

export class Feed {
  constructor(onChange) {
    this.onChange = onChange;
    this.state = "checking";
    this.model = null; // the newest answer
    this.points = []; // of the curves, oldest first
    this.heardMs = 0;
    this.source = null;
    this.timer = 0;
  }

  set(state) {
    this.state = state;
    this.onChange();
  }

  // Look whether we are signed in; if so, fetch the curves and follow.
  async check() {
    clearTimeout(this.timer);
    try {
      const answer = await fetch("/console/history", { cache: "no-store" });
      if (answer.status === 401) {
        this.set("outside");
        return;
      }
      if (!answer.ok) throw new Error(`status ${answer.status}`);
      this.points = (await answer.json()).points;
      this.follow();
    } catch {
      this.set("stale"); // the node is gone or busy
      this.timer = setTimeout(() => this.check(), PAUSE_MS);
    }
  }

  follow() {
    this.source?.close();
    const source = (this.source = new EventSource("/console/events"));
    source.onmessage = (event) => this.onModel(JSON.parse(event.data));
    source.onerror = () => {
      source.close();
      this.timer = setTimeout(() => this.check(), PAUSE_MS);
    };
    this.watch();
  }

  onModel(model) {
    if (!model.point) return; // the node has not looked yet
    this.model = model;
    this.heardMs = performance.now();
    const last = this.points[this.points.length - 1];
    if (!last || model.point.at > last.at) this.points = [...this.points, model.point];
    this.points = this.points.slice(-POINTS_MAX);
    this.set("following");
  }

  watch() {
    clearInterval(this.watching);
    this.watching = setInterval(() => {
      const silent = performance.now() - this.heardMs > SILENCE_MS_MAX;
      if (silent && this.state === "following") this.set("stale");
    }, 500);
  }

  // "" or why not.
  async signIn(secret) {
    try {
      const answer = await fetch("/console/sign-in", {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify({ secret }),
      });
      if (answer.status === 204) {
        this.check();
        return "";
      }
      return (await answer.json()).error;
    } catch {
      return "the node does not answer";
    }
  }

  // Curves of an "hour" or a "day"; null: they cannot be had just now.
  async curves(span) {
    try {
      const answer = await fetch(`/console/curves?span=${span}`, { cache: "no-store" });
      return answer.ok ? await answer.json() : null;
    } catch {
      return null;
    }
  }

  // "" when it was begun, or why it is refused.
  async act(act, about, typed, written) {
    try {
      const answer = await fetch("/console/acts", {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify({ act, about, typed, written }),
      });
      return answer.status === 202 ? "" : (await answer.json()).error;
    } catch {
      return "the node does not answer: whether it was begun, the list of acts shows";
    }
  }

  // What an act gave, once: {text}, {file, name} or {error}.
  async given(number) {
    try {
      const answer = await fetch("/console/acts/given", {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify({ number }),
      });
      const heads = answer.headers.get("content-disposition");
      if (heads === null) return await answer.json();
      return { file: await answer.blob(), name: heads.split('"')[1] };
    } catch {
      return { error: "the node does not answer" };
    }
  }

  async signOut() {
    this.source?.close();
    clearInterval(this.watching);
    clearTimeout(this.timer);
    await fetch("/console/sign-out", { method: "POST" });
    this.model = null;
    this.set("outside");
  }
}
