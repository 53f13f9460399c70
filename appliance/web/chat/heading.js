// Above the messages: the room's name and topic, what is pinned, who is there.

import { Face } from "./face.js";
import { html, Icon, useLayoutEffect, useRef, useState } from "../markup.js";
import { About, Topic } from "./topic.js";
import { hue, moment, plural } from "./wording.js";

const EXCERPT = 140;

// A UUID of version 7 tells when it was made.
function timeOf(msgId) {
  const ms = parseInt(msgId.slice(0, 8) + msgId.slice(9, 13), 16);
  return msgId[14] === "7" ? moment(ms) : "";
}

function PinLine({ room, shared, msgId, onShow }) {
  const record = room.timeline.records.find((each) => each.msg_id === msgId);
  return html`<li class="pinned"><button class="shows" onClick=${() => onShow(msgId)}>
      ${
        record
          ? html`<b>${shared.nameOf(record.author)}</b>
            <span>${record.body.slice(0, EXCERPT)}</span>`
          : html`<b>An earlier message</b><span>${timeOf(msgId)}</span>`
      }</button>
    ${
      room.mayModerate &&
      html`<button class="unpin" title="Unpin" aria-label="Unpin"
      onClick=${() => shared.pin(room, msgId, false)}><${Icon} name="close" /></button>`
    }</li>`;
}

function Pins({ room, shared, onShow }) {
  const { pins } = room.shared;
  if (pins.length === 0) {
    return html`<p class="none">Nothing is pinned here${
      room.mayModerate ? " yet: pin a message by the button beside it." : "."
    }</p>`;
  }
  return html`<ul>${pins.map(
    (msgId) => html`<${PinLine} key=${msgId} room=${room} shared=${shared} msgId=${msgId}
    onShow=${onShow} />`,
  )}</ul>`;
}

function Person({ author, state, shared }) {
  const name = shared.nameOf(author);
  const words = [name === author ? "" : author, author === shared.chat.author ? "you" : ""];
  return html`<li class=${`person hue-${hue(author)}`} data-author=${author} data-state=${state}>
    <${Face} as="face" name=${name} picture=${shared.pictureOf(author)}>
      <span class="lamp" /></${Face}>
    <span class="name">${name}</span>
    <span class="more">${words.filter(Boolean).join(", ")}</span>
    <span class="state">${state}</span></li>`;
}

function People({ room, shared }) {
  const people = [...room.shared.people].sort(([a], [b]) =>
    shared.nameOf(a).localeCompare(shared.nameOf(b)),
  );
  if (people.length === 0) return html`<p class="none">Nobody is said to be here.</p>`;
  return html`<ul>${people.map(
    ([author, state]) => html`<${Person} key=${author} author=${author} state=${state}
    shared=${shared} />`,
  )}</ul>`;
}

// Each with its icon, how many there are (0 is not shown), how that is said, and what it shows.
const PANELS = [
  ["about", "about", () => 0, () => "About this room", About],
  [
    "pins",
    "pin",
    (room) => room.shared.pins.length,
    (number) => plural(number, "pinned message", "pinned messages"),
    Pins,
  ],
  [
    "people",
    "people",
    (room) => room.shared.people.size,
    (number) => plural(number, "person here", "people here"),
    People,
  ],
];

// `open`: the name of the panel that is shown, or null.
function Panels({ room, shared, open, onOpen, onShow }) {
  const box = useRef(null);
  const close = (focus) => {
    onOpen(null);
    if (focus) box.current.querySelector('[aria-expanded="true"]')?.focus();
  };
  const onKeyDown = (event) => {
    if (event.key !== "Escape" || !open) return;
    event.stopPropagation();
    close(true);
  };
  return html`<div class="panels" ref=${box} onKeyDown=${onKeyDown}>${PANELS.map(
    ([name, icon, count, said, Panel]) => {
      const number = count(room);
      const words = said(number);
      return html`<button key=${name} class=${`opens ${name}`} title=${words} aria-label=${words}
      aria-expanded=${open === name ? "true" : "false"}
      onClick=${() => onOpen(open === name ? null : name)}><${Icon} name=${icon} />
      ${number > 0 && html`<span class="count">${number}</span>`}</button>
    ${
      open === name &&
      html`<section class="panel" aria-label=${words}>
        <h3>${words}</h3>
        <${Panel} room=${room} shared=${shared} onShow=${(msgId) => {
          close(false);
          onShow(msgId);
        }} /></section>`
    }`;
    },
  )}</div>`;
}

export function Heading({ room, shared, onShow }) {
  const [open, setOpen] = useState(null);
  useLayoutEffect(() => setOpen(null), [room.id]);
  return html`<div class="heading"><div class="name">
      <h2>${room.name}</h2>
      <span class="size">${plural(room.timeline.newest, "message", "messages")}</span>
      ${room.closed && html`<span class="size room-closed">closed</span>`}
      ${
        room.places.shared &&
        html`<span class="size shared-with">shared with ${room.places.sites.join(", ")}</span>`
      }</div>
    ${shared.exists && html`<${Topic} room=${room} shared=${shared} />`}</div>
    ${
      shared.exists &&
      html`<${Panels} room=${room} shared=${shared} open=${open} onOpen=${setOpen}
      onShow=${onShow} />`
    }`;
}
