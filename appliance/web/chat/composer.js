// Where a message is written. Works without a connection: what is sent waits in the outbox.

import { html, Icon, useLayoutEffect, useRef, useState } from "../markup.js";
import { BODY_SIZE_MAX, sizeOf, splitText, TEXT_SIZE_MAX } from "./text.js";
import { plural } from "./wording.js";

const HEIGHT_PX_MAX = 240;
const NAMES_MAX = 3; // of those who type

function hintOf(text, refused) {
  const size = text.length > BODY_SIZE_MAX / 4 ? sizeOf(text) : 0;
  if (size > TEXT_SIZE_MAX)
    return `Too long by ${plural(size - TEXT_SIZE_MAX, "byte", "bytes")}: send it in pieces.`;
  if (refused) return "Too much is waiting to be sent: wait for the connection.";
  if (size > BODY_SIZE_MAX)
    return `A long text: it is stored as ${splitText(text).length} records of one thread.`;
  return "";
}

// Where nothing can be written. What was typed before is kept for when the room opens again.
function Closed({ chat, room }) {
  const why = room.closed
    ? "This room is closed: it takes no messages."
    : "In this room you may read, and not write.";
  return html`<div class="composer closed"><p role="status">${why}</p>${
      room.closed &&
      room.mayModerate &&
      html`<button type="button" onClick=${() => chat.closeRoom(room, false)}>Open it again
      </button>`
    }</div>`;
}

export function Composer({ chat, room }) {
  return room.closed || !room.maySend
    ? html`<${Closed} chat=${chat} room=${room} />`
    : html`<${Writing} chat=${chat} room=${room} />`;
}

function Writing({ chat, room }) {
  const field = useRef(null);
  const [, redraw] = useState(0);
  const [refused, refuse] = useState(false);
  const text = room.typed;
  const hint = hintOf(text, refused);
  const sendable = text.trim() !== "" && sizeOf(text) <= TEXT_SIZE_MAX;

  useLayoutEffect(() => field.current.focus(), [room.id, room.answering]);
  useLayoutEffect(() => {
    field.current.style.height = "0";
    field.current.style.height = `${Math.min(HEIGHT_PX_MAX, field.current.scrollHeight)}px`;
  }, [text, room.id]);

  const change = (value) => {
    room.typed = value;
    chat.shared.typing(room, value);
    refuse(false);
    redraw((turn) => turn + 1);
  };
  const send = () => {
    if (!sendable) return;
    if (!chat.write(room, text.replace(/\s+$/, ""), room.answering?.key ?? null)) {
      refuse(true);
      return;
    }
    room.answering = null;
    change("");
  };
  const onKeyDown = (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      send();
    } else if (event.key === "Escape" && room.answering) {
      room.answering = null;
      redraw((turn) => turn + 1);
    }
  };
  const forgetAnswer = () => {
    room.answering = null;
    redraw((turn) => turn + 1);
  };

  return html`<form class="composer" onSubmit=${(event) => {
    event.preventDefault();
    send();
  }}>
    ${
      room.answering &&
      html`<div class="answering"><${Icon} name="reply" />
      <span>Answering <b>${room.answering.author}</b>: ${room.answering.body.slice(0, 100)}</span>
      <button type="button" aria-label="Do not answer" onClick=${forgetAnswer}>
        <${Icon} name="close" /></button></div>`
    }
    <div class="field">
      <label class="hidden" for="message">Message to ${room.name}</label>
      <textarea id="message" ref=${field} rows="1" value=${text}
        placeholder=${`Message to ${room.name}`}
        aria-describedby="message-hint" onInput=${(event) => change(event.target.value)}
        onKeyDown=${onKeyDown} />
      <button class="send" disabled=${!sendable} aria-label="Send" title="Send (Enter)">
        <${Icon} name="send" /></button>
    </div>
    <div class="under"><p class="hint" id="message-hint" role="status">${hint}</p>
      ${!hint && html`<${Typing} shared=${chat.shared} room=${room} />`}</div>
  </form>`;
}

function Typing({ shared, room }) {
  const names = shared.typers(room).map((author) => shared.nameOf(author));
  if (names.length === 0) return null;
  const shown = names.length > NAMES_MAX ? [`${names.length} people`] : names;
  return html`<p class="typing"><span class="dots" aria-hidden="true"><i /><i /><i /></span>
    ${new Intl.ListFormat("en").format(shown)} ${names.length === 1 ? "is" : "are"} typing</p>`;
}
