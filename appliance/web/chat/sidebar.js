// Rooms with their unread counts, a new room, and the connection.

import { html, Icon, useLayoutEffect, useRef, useState } from "../markup.js";
import { User } from "./profile.js";
import { count, plural } from "./wording.js";

const UNREAD_SHOWN_MAX = 999;
const LINK_WORDS = {
  idle: "Not connected",
  connecting: "Connecting",
  waiting: "Reconnecting",
  live: "Connected",
  refused: "Signed out",
};

export function linkWords(chat) {
  const { state } = chat.link;
  return state.name === "live" ? `Connected to node ${state.node}` : LINK_WORDS[state.name];
}

// Which node we speak to, what waits, and the other nodes one could open.
function Connection({ chat }) {
  const { state, urls } = chat.link;
  const waiting = chat.outbox.waiting;
  return html`<details class="connection" data-link=${state.name}>
    <summary><span class="lamp" /><span class="words" role="status">${linkWords(chat)}</span>
      ${waiting > 0 && html`<span class="waiting">
        ${plural(waiting, "message waits", "messages wait")}</span>`}</summary>
    <div class="nodes">
      ${
        state.name === "waiting" &&
        html`<p>${state.detail}; trying each node in turn.
        <button onClick=${() => chat.link.hurry()}>Try now</button></p>`
      }
      ${state.carrier && html`<p class="carrier">Carried by ${state.carrier}.</p>`}
      <ul>${urls.map(
        (url) => html`<li key=${url} class=${url === state.url ? "current" : ""}>
        <a href=${pageOf(url)} target="_blank" rel="noopener">
            ${url.replace(/^wss?:\/\/|\/v1$/g, "")}</a></li>`,
      )}</ul>
      <p>A browser that refuses a node's certificate must open that node once to be told to
        accept it.</p>
    </div>
  </details>`;
}

const pageOf = (url) => url.replace(/^ws/, "http").replace(/\/v1$/, "/");

function RoomLine({ chat, room, onOpen }) {
  const unread = chat.unread(room);
  const current = room.id === chat.openId;
  return html`<li><button class="room" aria-current=${current ? "page" : undefined}
      data-room=${room.name}
      data-unread=${unread} onClick=${() => onOpen(room.id)}>
    <span class="name">${room.name}</span>
    ${room.closed && html`<span class="closed-mark">closed</span>`}
    ${
      unread > 0 &&
      !current &&
      html`<span class="unread"><span aria-hidden="true">
      ${unread > UNREAD_SHOWN_MAX ? `${count(UNREAD_SHOWN_MAX)}+` : count(unread)}</span>
      <span class="hidden">${plural(unread, "unread message", "unread messages")}</span></span>`
    }
  </button></li>`;
}

function NewRoom({ chat, onDone }) {
  const [name, setName] = useState("");
  const [error, setError] = useState("");
  const field = useRef(null);
  useLayoutEffect(() => field.current.focus(), []);
  const create = (event) => {
    event.preventDefault();
    if (name.trim() === "") return;
    chat.create(name.trim(), (refusal) => (refusal ? setError(refusal) : onDone()));
  };
  return html`<form class="new-room" onSubmit=${create}
      onKeyDown=${(event) => event.key === "Escape" && onDone()}>
    <label for="new-room">Name of the room</label>
    <input id="new-room" ref=${field} value=${name} maxlength="128" autocomplete="off"
      onInput=${(event) => {
        setName(event.target.value);
        setError("");
      }} />
    ${error && html`<p class="refusal" role="alert">${error}</p>`}
    <div><button class="primary" disabled=${name.trim() === ""}>Create</button>
      <button type="button" onClick=${onDone}>Cancel</button></div>
  </form>`;
}

export function Sidebar({ chat, rooms, filter, onFilter, onOpen, onSignOut }) {
  const [creating, setCreating] = useState(false);
  return html`<nav class="sidebar" aria-label="Rooms">
    <div class="brand"><img src="/web/icon.svg" width="22" height="22" alt="" />
      <span>TigerChat</span></div>
    <div class="find"><label class="hidden" for="find-room">Find a room</label>
      <input id="find-room" type="search" placeholder="Find a room" value=${filter}
        autocomplete="off"
        onInput=${(event) => onFilter(event.target.value)} />
      <button aria-label="Create a room" title="Create a room"
        aria-expanded=${creating ? "true" : "false"}
        onClick=${() => setCreating(!creating)}><${Icon} name="plus" /></button></div>
    ${creating && html`<${NewRoom} chat=${chat} onDone=${() => setCreating(false)} />`}
    <ul class="rooms">${rooms.map(
      (room) => html`<${RoomLine} key=${room.id} chat=${chat} room=${room}
      onOpen=${onOpen} />`,
    )}</ul>
    ${
      rooms.length === 0 &&
      chat.listed &&
      html`<p class="none">${
        filter ? "No room of that name." : "No rooms yet. Create the first."
      }</p>`
    }
    <div class="foot"><${Connection} chat=${chat} />
      <${User} chat=${chat} onSignOut=${onSignOut} /></div>
  </nav>`;
}
