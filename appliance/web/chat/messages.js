// The messages of the open room: a log that grows at both ends and keeps the reader's place.

import { Component, html, Icon } from "../markup.js";
import { entriesOf } from "./entries.js";
import { Face } from "./face.js";
import { Links } from "./links.js";
import { Actions, Reactions } from "./reactions.js";
import { piecesOf } from "./text.js";
import { hue, moment, plural, time } from "./wording.js";

const NEAR_PX = 500; // from an end of what is loaded: fetch more
const BOTTOM_PX = 48; // from the newest: counts as being there

const SAYING = {
  queued: ["pending", "waiting to be sent"],
  flying: ["pending", "sent, not acknowledged yet"],
  acknowledged: ["acknowledged", "acknowledged: stored by a quorum of nodes"],
  stored: ["acknowledged", "acknowledged: stored by a quorum of nodes"],
  failed: ["failed", "refused"],
};

function Body({ text }) {
  return piecesOf(text).map((piece) => {
    if (piece.kind === "block") return html`<pre><code>${piece.text}</code></pre>`;
    if (piece.kind === "code") return html`<code>${piece.text}</code>`;
    return html`<${Links} text=${piece.text} />`;
  });
}

class Text extends Component {
  shouldComponentUpdate(next) {
    const [a, b] = [this.props.text, next.text];
    return (
      a.body !== b.body ||
      a.state !== b.state ||
      a.op !== b.op ||
      a.gap !== b.gap ||
      a.late !== b.late ||
      this.props.ticks !== next.ticks ||
      this.props.own !== next.own ||
      this.props.item !== next.item ||
      this.props.picking !== next.picking ||
      this.props.exists !== next.exists ||
      (a.parent?.body ?? a.parent) !== (b.parent?.body ?? b.parent)
    );
  }

  render({ text, own, item, picking, ticks, actions }) {
    const { room, shared, onRetry, onDiscard, onShow } = actions;
    const [state, saying] = SAYING[text.state];
    return html`<div class="text" id=${`m-${text.key}`} data-state=${state}
      data-op=${text.op} data-id=${text.key} data-pinned=${item.pinned ? "true" : undefined}>
      ${
        text.gap &&
        html`<p class="gap">Something that was said before this could not be had from any site.</p>`
      }
      ${text.parent && html`<${Parent} parent=${text.parent} onShow=${onShow} />`}
      <div class="body"><${Body} text=${text.body} /></div>
      <div class="marks">
        ${
          own &&
          html`<span class="state"
            title=${text.records > 1 ? `${saying} (${text.records} records)` : saying}>
          <${Icon} name=${state} /><span class="hidden">${saying}</span></span>
          <${Ticks} ticks=${ticks} />`
        }
        ${
          text.late &&
          html`<span class="late" title="came when what was said after it had been shown">
          late</span>`
        }
        ${
          state === "acknowledged" &&
          html`<${Actions} text=${text} item=${item} room=${room} shared=${shared}
          picking=${picking} onReply=${actions.onReply} onPicking=${actions.onPicking} />`
        }
        <time title=${moment(text.ms)}>${time(text.ms)}</time>
      </div>
      ${
        item.reactions.length > 0 &&
        html`<${Reactions} reactions=${item.reactions} msgId=${text.key} room=${room}
          shared=${shared} />`
      }
      ${
        state === "failed" &&
        html`<div class="refusal" role="alert">Refused: ${text.error}
        <button onClick=${() => onRetry(text.key)}>Send again</button>
        <button onClick=${() => onDiscard(text.key)}>Discard</button></div>`
      }
    </div>`;
  }
}

// `ticks`: the other sites of a shared room, a space between, `+` before those that have it.
function Ticks({ ticks }) {
  if (!ticks) return null;
  return html`<span class="sites">${ticks.split(" ").map((tick) => {
    const has = tick.startsWith("+");
    const site = tick.slice(1);
    const words = has ? `${site} has it, stored by a quorum of its nodes` : `not yet in ${site}`;
    return html`<span key=${site} class="site" data-site=${site} data-has=${has ? "yes" : "no"}
      title=${words}><${Icon} name=${has ? "acknowledged" : "pending"} />${site}
      <span class="hidden">${words}</span></span>`;
  })}</span>`;
}

function Parent({ parent, onShow }) {
  if (parent === "earlier") return html`<div class="parent">in answer to an earlier message</div>`;
  return html`<button class="parent" onClick=${() => onShow(parent.key)}>
    <b>${parent.author}</b> ${parent.body.slice(0, 140)}</button>`;
}

function tickWords(places, text) {
  if (!places.shared || text.ops.length < text.records) return "";
  return places
    .ticks(text.ops)
    .map(({ site, has }) => (has ? "+" : "-") + site)
    .join(" ");
}

function Block({ entry, picking, actions }) {
  const { room, shared } = actions;
  const name = entry.importer ? entry.author : shared.nameOf(entry.author);
  return html`<article class=${`block hue-${hue(entry.author)}${entry.own ? " own" : ""}`}>
    <${Face} as="avatar" name=${name}
      picture=${entry.importer ? "" : shared.pictureOf(entry.author)} />
    <header><span class="author">${name}</span>
      ${name !== entry.author && html`<span class="login">${entry.author}</span>`}
      <time title=${moment(entry.ms)}>${time(entry.ms)}</time>
      ${
        entry.importer &&
        html`<span class="imported login" title="nobody else vouches for author and time">
        imported by ${entry.importer}</span>`
      }</header>
    ${entry.texts.map(
      (text) =>
        html`<${Text} key=${text.key} text=${text} own=${entry.own} actions=${actions}
          item=${room.shared.of(text.key)} exists=${shared.exists}
          ticks=${entry.own ? tickWords(room.places, text) : ""}
          picking=${picking === text.key} />`,
    )}
  </article>`;
}

function Entry({ entry, picking, actions }) {
  if (entry.kind === "day") return html`<h3 class="day"><span>${entry.label}</span></h3>`;
  if (entry.kind === "new") return html`<div class="new" role="separator"><span>New</span></div>`;
  if (entry.kind === "event") {
    return html`<p class="event"><b>${entry.text.author}</b> ${entry.text.event}${" "}
      <time>${time(entry.text.ms)}</time></p>`;
  }
  return html`<${Block} entry=${entry} picking=${picking} actions=${actions} />`;
}

export class Messages extends Component {
  constructor() {
    super();
    this.state = { picking: null }; // the message for which reactions are offered
    this.stuck = true; // to the newest end
    this.roomId = null;
    this.onScroll = this.onScroll.bind(this);
    this.show = this.show.bind(this);
    this.onVisible = () => this.look();
  }

  componentDidMount() {
    document.addEventListener("visibilitychange", this.onVisible);
    this.resize = new ResizeObserver(() => this.settle());
    this.resize.observe(this.box);
    this.componentDidUpdate(null, null, null);
  }

  componentWillUnmount() {
    document.removeEventListener("visibilitychange", this.onVisible);
    this.resize.disconnect();
  }

  // The first text in sight and where it stands, so that the next render can put it there again.
  getSnapshotBeforeUpdate() {
    if (this.stuck || this.roomId !== this.props.room.id) return null;
    const { top } = this.box.getBoundingClientRect();
    for (const node of this.box.querySelectorAll(".text[data-op]")) {
      const place = node.getBoundingClientRect();
      if (place.bottom > top) return { id: node.id, top: place.top };
    }
    return null;
  }

  componentDidUpdate(_props, _state, anchor) {
    const { room } = this.props;
    if (this.roomId !== room.id) {
      this.roomId = room.id;
      this.stuck = true;
    }
    const node = anchor && document.getElementById(anchor.id);
    if (node) this.box.scrollTop += node.getBoundingClientRect().top - anchor.top;
    if (room.seeking) this.seek(room);
    this.settle();
    this.look();
  }

  settle() {
    if (this.stuck) this.box.scrollTop = this.box.scrollHeight;
  }

  onScroll() {
    const { box } = this;
    const { room } = this.props;
    this.stuck =
      room.timeline.live && box.scrollHeight - box.scrollTop - box.clientHeight < BOTTOM_PX;
    this.look();
    this.setState({});
  }

  // Fetch what is nearly in sight; note what was read.
  look() {
    const { chat, room } = this.props;
    const { box } = this;
    const below = box.scrollHeight - box.scrollTop - box.clientHeight;
    if (chat.link.state.name === "live" && room.loaded) {
      if (box.scrollTop < NEAR_PX) chat.loadOlder(room);
      if (below < NEAR_PX) chat.loadNewer(room);
    }
    if (this.stuck && document.visibilityState === "visible" && room.loaded) {
      chat.markRead(room);
      room.timeline.settle();
    }
  }

  // Towards older messages until the one that is wanted is there.
  seek(room) {
    this.stuck = false;
    const found = document.getElementById(`m-${room.seeking}`);
    if (!found && !room.timeline.oldestReached && room.loaded) {
      this.props.chat.loadOlder(room);
      return;
    }
    const key = room.seeking;
    room.seeking = null;
    this.show(key);
  }

  show(key) {
    const node = document.getElementById(`m-${key}`);
    if (!node) return;
    node.scrollIntoView({ block: "center" });
    node.classList.remove("shown");
    node.getBoundingClientRect(); // so that the animation starts anew
    node.classList.add("shown");
  }

  toNewest() {
    this.stuck = true;
    this.props.chat.jumpToNewest(this.props.room);
    this.settle();
    this.setState({});
  }

  render({ chat, room, onReply }) {
    const { timeline } = room;
    const items = timeline.live ? chat.outbox.of(room.id) : [];
    const own = { author: chat.welcome?.author ?? chat.user, clientId: chat.outbox.clientId };
    const entries = entriesOf(timeline.records, items, {
      own,
      newFrom: room.newFrom,
      nowMs: Date.now(),
      places: room.places,
    });
    const actions = {
      room,
      shared: chat.shared,
      onReply,
      onPicking: (picking) => this.setState({ picking }),
      onShow: this.show,
      onRetry: (id) => chat.retry(id),
      onDiscard: (id) => chat.discard(id),
    };
    const later = timeline.newest - timeline.last;
    return html`<div class="messages" ref=${(box) => {
      this.box = box;
    }} onScroll=${this.onScroll} tabindex="0"
        role="log" aria-label=${`Messages in ${room.name}`}
        aria-busy=${room.loading ? "true" : "false"}>
      <${Beginning} room=${room} empty=${entries.length === 0}
        onOlder=${() => chat.loadOlder(room)} />
      ${entries.map(
        (entry) => html`<${Entry} key=${entry.key} entry=${entry} actions=${actions}
        picking=${this.state.picking} />`,
      )}
      ${
        !this.stuck &&
        html`<button class="newest" onClick=${() => this.toNewest()}><${Icon} name="down" />
        ${later > 0 ? plural(later, "newer message", "newer messages") : "Newest"}</button>`
      }
    </div>`;
  }
}

function Beginning({ room, empty, onOlder }) {
  if (room.error) return html`<p class="beginning" role="alert">${room.error}</p>`;
  if (!room.loaded) return html`<p class="beginning">Loading…</p>`;
  if (!room.timeline.oldestReached) {
    return html`<p class="beginning"><button onClick=${onOlder} disabled=${room.loading !== null}>
      ${room.loading ? "Loading earlier messages…" : "Earlier messages"}</button></p>`;
  }
  const words = empty ? "Nothing here yet. Say something." : `This is where ${room.name} begins.`;
  return html`<p class="beginning">${words}</p>`;
}
