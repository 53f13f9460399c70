// Reactions to a message, and what one can do with it: answer, react, pin.

import { html, Icon, useLayoutEffect, useRef } from "../markup.js";
import { plural } from "./wording.js";

const OFFERED = [
  ["👍", "Thumbs up"],
  ["❤️", "Heart"],
  ["😂", "Laughing"],
  ["🎉", "Party"],
  ["😮", "Surprised"],
  ["😢", "Sad"],
  ["🙏", "Thanks"],
  ["✅", "Done"],
];
const WORDS = new Map(OFFERED);
const NAMED_MAX = 20; // people in the words of one reaction

function whoReacted(authors, nameOf) {
  const names = authors.slice(0, NAMED_MAX).map(nameOf);
  const more = authors.length - names.length;
  return names.join(", ") + (more > 0 ? ` and ${plural(more, "other", "others")}` : "");
}

export function Reactions({ reactions, msgId, room, shared }) {
  return html`<ul class="reactions" aria-label="Reactions">${reactions.map(
    ({ emoji, authors }) => html`<${Reaction} key=${emoji} emoji=${emoji} authors=${authors}
    shared=${shared} onToggle=${() => shared.react(room, msgId, emoji)} />`,
  )}</ul>`;
}

// Who it was stands beside it while it is pointed at or in focus, and in its words for a reader.
function Reaction({ emoji, authors, shared, onToggle }) {
  const said = WORDS.get(emoji) ?? emoji;
  const names = whoReacted(authors, (author) => shared.nameOf(author));
  return html`<li><button class="reaction" data-emoji=${emoji}
      aria-pressed=${authors.includes(shared.chat.author) ? "true" : "false"}
      aria-label=${`${said}: ${plural(authors.length, "person", "people")}: ${names}`}
      onClick=${onToggle}>
      <span class="emoji">${emoji}</span>
      <span class="count">${authors.length}</span></button>
    <span class="reacted" aria-hidden="true"><b>${said}</b> ${names}</span></li>`;
}

// Opens with the first in focus; arrows move, Escape leaves.
export function Picker({ onPick, onClose }) {
  const list = useRef(null);
  useLayoutEffect(() => list.current.querySelector("button").focus(), []);
  const onKeyDown = (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (step) {
      const buttons = [...list.current.querySelectorAll("button")];
      const at = buttons.indexOf(document.activeElement);
      buttons[(at + step + buttons.length) % buttons.length].focus();
      event.preventDefault();
    } else if (event.key === "Escape") {
      event.stopPropagation();
      onClose();
    }
  };
  const onFocusOut = (event) => {
    if (list.current?.contains(event.relatedTarget) === false) onClose();
  };
  return html`<div class="picker" role="group" aria-label="React with" ref=${list}
    onKeyDown=${onKeyDown} onFocusOut=${onFocusOut}>${OFFERED.map(
      ([emoji, words]) => html`<button key=${emoji} data-emoji=${emoji} aria-label=${words}
      title=${words} onClick=${() => onPick(emoji)}><span class="emoji">${emoji}</span></button>`,
    )}</div>`;
}

// The controls beside a stored message.
export function Actions({ text, item, room, shared, picking, onReply, onPicking }) {
  const { key } = text;
  const toggle = useRef(null);
  const close = () => {
    onPicking(null);
    toggle.current?.focus();
  };
  return html`<span class="actions">
    ${
      shared.exists &&
      html`<button class="react" ref=${toggle} title="React" aria-label="React to this message"
      aria-expanded=${picking ? "true" : "false"}
      onMouseDown=${(event) => event.preventDefault()}
      onClick=${() => (picking ? close() : onPicking(key))}><${Icon} name="smile" /></button>`
    }
    <button class="reply" title="Answer" aria-label="Answer this message"
      onClick=${() => onReply(text)}><${Icon} name="reply" /></button>
    ${
      shared.exists &&
      room.mayModerate &&
      html`<button class="pin" aria-pressed=${item.pinned ? "true" : "false"}
      title=${item.pinned ? "Unpin" : "Pin"}
      aria-label=${item.pinned ? "Unpin this message" : "Pin this message"}
      onClick=${() => shared.pin(room, key, !item.pinned)}><${Icon} name="pin" /></button>`
    }
    ${
      picking &&
      html`<${Picker} onClose=${() => onPicking(null)} onPick=${(emoji) => {
        shared.react(room, key, emoji);
        close();
      }} />`
    }
  </span>`;
}
