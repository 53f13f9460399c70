// The chat page: signs in, then shows rooms beside the open one.

import { Chat } from "./chat.js";
import { tokenFound, tokenForget, tokenKeep, userOf } from "./identity.js";
import { Composer } from "./composer.js";
import { farmKey } from "./directory.js";
import { Heading } from "./heading.js";
import { html, Icon, render, useEffect, useLayoutEffect, useRef, useState } from "../markup.js";
import { Messages } from "./messages.js";
import { linkWords, Sidebar } from "./sidebar.js";

const NODES_KEY = "tigerchat.nodes";

// WebSocket addresses of the site's nodes, the one that served this page first.
function ordered(urls) {
  const own = `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/v1`;
  return [own, ...urls.filter((url) => url !== own)];
}

async function fetchNodes() {
  let key = farmKey("");
  try {
    const answer = await fetch("/nodes.json", { cache: "no-store" });
    const { nodes, farm_key: named } = await answer.json();
    key = farmKey(named);
    sessionStorage.setItem(NODES_KEY, JSON.stringify(nodes.map((node) => node.url)));
  } catch {
    // This node is gone or going: what we knew before must do.
  }
  return { urls: ordered(JSON.parse(sessionStorage.getItem(NODES_KEY) ?? "[]")), key };
}

function SignIn({ refusal, onToken }) {
  const [token, setToken] = useState("");
  const [error, setError] = useState(refusal);
  const field = useRef(null);
  useLayoutEffect(() => field.current.focus(), []);
  const submit = (event) => {
    event.preventDefault();
    if (userOf(token.trim()) === null) setError("This is not a token.");
    else onToken(token.trim());
  };
  return html`<main class="sign-in"><form onSubmit=${submit}>
    <img src="/web/icon.svg" width="44" height="44" alt="" />
    <h1>TigerChat</h1>
    <label for="token">Your token</label>
    <textarea id="token" ref=${field} rows="4" value=${token} autocomplete="off" spellcheck=${false}
      onInput=${(event) => {
        setToken(event.target.value);
        setError("");
      }}
      onKeyDown=${(event) => event.key === "Enter" && submit(event)} />
    ${error && html`<p class="refusal" role="alert">${error}</p>`}
    <button class="primary" disabled=${token.trim() === ""}>Sign in</button>
    <p class="hint">
      <code>tigerchat token --user NAME</code> prints one. It stays in this tab only.
    </p>
  </form></main>`;
}

function sorted(chat, filter) {
  const wanted = filter.trim().toLocaleLowerCase();
  return [...chat.rooms.values()]
    .filter((room) => room.name.toLocaleLowerCase().includes(wanted))
    .sort((a, b) => a.name.localeCompare(b.name));
}

// The room above (-1) or below (+1) the open one, around the ends; of a list without it an end.
function neighbour(rooms, openId, step) {
  const at = rooms.findIndex((room) => room.id === openId);
  if (at === -1) return step < 0 ? rooms.at(-1) : rooms[0];
  return rooms[(at + step + rooms.length) % rooms.length];
}

function Rooms({ chat, onSignOut }) {
  const [filter, setFilter] = useState("");
  const [drawer, setDrawer] = useState(false);
  const rooms = sorted(chat, filter);
  const room = chat.rooms.get(chat.openId);
  const openRoom = (roomId) => {
    chat.open(roomId);
    setDrawer(false);
  };

  useEffect(() => {
    if (room || !chat.listed || rooms.length === 0) return;
    const last = chat.rooms.has(chat.lastOpen()) ? chat.lastOpen() : rooms[0].id;
    chat.open(last);
  });
  // In place together with what is shown, and asking for the rooms of that moment: an ordinary
  // effect comes later, and a key pressed before it would be taken for one on an older list.
  useLayoutEffect(() => {
    const onKey = (event) => {
      if (event.key === "k" && (event.ctrlKey || event.metaKey)) {
        event.preventDefault();
        setDrawer(true);
        document.getElementById("find-room").focus();
      } else if (event.altKey && (event.key === "ArrowUp" || event.key === "ArrowDown")) {
        event.preventDefault();
        const next = neighbour(sorted(chat, filter), chat.openId, event.key === "ArrowUp" ? -1 : 1);
        if (next) openRoom(next.id);
      } else if (event.key === "Escape") setDrawer(false);
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  });
  const unread = [...chat.rooms.values()].reduce((sum, each) => sum + chat.unread(each), 0);
  useEffect(() => {
    document.title = `${unread ? `(${unread}) ` : ""}${room ? `${room.name} · ` : ""}TigerChat`;
  }, [unread, room?.name]);

  return html`<div class="chat" data-drawer=${drawer ? "open" : "closed"}>
    <${Sidebar} chat=${chat} rooms=${rooms} filter=${filter}
      onFilter=${setFilter} onOpen=${openRoom}
      onSignOut=${onSignOut} />
    <button class="veil" aria-label="Close the list of rooms" tabindex=${drawer ? 0 : -1}
      onClick=${() => setDrawer(false)} />
    <main class="open-room">
      <header class="title">
        <button class="menu" aria-label="Rooms" onClick=${() => setDrawer(true)}>
          <${Icon} name="menu" />
          ${unread > 0 && html`<span class="dot" />`}</button>
        ${
          room
            ? html`<${Heading} room=${room} shared=${chat.shared}
              onShow=${(msgId) => chat.seek(room, msgId)} />`
            : html`<h2>TigerChat</h2>`
        }
        <span class="short-link" data-link=${chat.link.state.name}>
          <span class="lamp" />${linkWords(chat)}</span>
      </header>
      ${
        chat.notice &&
        html`<p class="notice" role="alert"><span>${chat.notice}</span>
        <button aria-label="Dismiss" onClick=${() => chat.dismiss()}>
          <${Icon} name="close" /></button></p>`
      }
      ${
        room
          ? html`<${Messages} chat=${chat} room=${room}
            onReply=${(text) => chat.reply(room, text)} />
        <${Composer} chat=${chat} room=${room} />`
          : html`<p class="nothing-open">
            ${chat.listed ? "Create a room to begin." : `${linkWords(chat)}…`}</p>`
      }
    </main>
  </div>`;
}

class Page {
  constructor(root) {
    this.root = root;
    this.chat = null;
    this.drawn = true;
    addEventListener("online", () => this.chat?.link.hurry());
    // Said, because a node hears nothing of a page that is gone by QUIC.
    addEventListener("pagehide", () => this.chat?.link.close());
    addEventListener("pageshow", (event) => event.persisted && this.chat?.link.open());
    addEventListener("hashchange", () => {
      const token = new URLSearchParams(location.hash.slice(1)).has("token") ? tokenFound() : null;
      if (token) this.enter(token);
    });
  }

  async enter(token) {
    this.chat?.stop();
    tokenKeep(token);
    this.chat = new Chat({ token, urls: ordered([]), onChange: () => this.draw() });
    this.draw();
    const { chat } = this;
    fetchNodes().then(({ urls, key }) => {
      chat.learn(urls, key);
      this.draw();
    });
    await chat.start();
  }

  leave(refusal = "") {
    this.chat?.stop();
    this.chat = null;
    tokenForget();
    this.refusal = refusal;
    this.draw();
  }

  draw() {
    if (!this.drawn) return;
    this.drawn = false;
    requestAnimationFrame(() => this.drawNow());
    setTimeout(() => this.drawNow(), 250); // a hidden page gets no frames, yet its title counts
  }

  drawNow() {
    if (this.drawn) return;
    this.drawn = true;
    if (this.chat?.link.state.name === "refused") {
      this.leave(this.chat.link.state.detail);
      return;
    }
    render(
      this.chat
        ? html`<${Rooms} chat=${this.chat} onSignOut=${() => this.leave()} />`
        : html`<${SignIn} refusal=${this.refusal} onToken=${(token) => this.enter(token)} />`,
      this.root,
    );
  }
}

const page = new Page(document.getElementById("page"));
const token = tokenFound();
if (token) page.enter(token);
else page.draw();
