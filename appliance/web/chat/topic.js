// What a room is about: its topic in a line, its description in a panel, and the form for both.

import { html, Icon, useLayoutEffect, useRef, useState } from "../markup.js";
import { Links } from "./links.js";

const TOPIC_MAX = 250;
const DESCRIPTION_MAX = 1000; // characters; no more than 4096 bytes whatever they are

function TopicForm({ room, shared, onDone }) {
  const before = useRef({ topic: room.shared.topic, description: room.shared.description });
  const [topic, setTopic] = useState(before.current.topic);
  const [description, setDescription] = useState(before.current.description);
  const [refusal, setRefusal] = useState("");
  const field = useRef(null);
  useLayoutEffect(() => field.current.focus(), []);
  const save = (event) => {
    event.preventDefault();
    const texts = Object.entries({ topic: topic.trim(), description: description.trim() });
    // What was not touched here may have been changed elsewhere meanwhile: it is left alone.
    const changed = texts.filter(([type, text]) => text !== before.current[type]);
    shared.describe(room, changed, (said) => (said ? setRefusal(said) : onDone()));
  };
  const onKeyDown = (event) => {
    if (event.key === "Escape") {
      event.stopPropagation();
      onDone();
    } else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) save(event);
  };
  return html`<form class="topic-form" onSubmit=${save} onKeyDown=${onKeyDown}>
    <label class="hidden" for="topic">Topic of ${room.name}</label>
    <input id="topic" ref=${field} value=${topic} maxlength=${TOPIC_MAX} autocomplete="off"
      placeholder="What is this room about?" onInput=${(event) => setTopic(event.target.value)} />
    <label class="hidden" for="description">Description of ${room.name}</label>
    <textarea id="description" rows="3" value=${description} maxlength=${DESCRIPTION_MAX}
      placeholder="More about it: what belongs here, where to read on"
      onInput=${(event) => setDescription(event.target.value)} />
    ${refusal && html`<p class="refusal" role="alert">${refusal}</p>`}
    <div class="buttons"><button class="primary">Save</button>
      <button type="button" onClick=${onDone}>Cancel</button></div>
  </form>`;
}

export function Topic({ room, shared }) {
  const [editing, setEditing] = useState(false);
  const opens = useRef(null);
  const wasEditing = useRef(false);
  useLayoutEffect(() => setEditing(false), [room.id]);
  useLayoutEffect(() => {
    if (wasEditing.current && !editing) opens.current?.focus();
    wasEditing.current = editing;
  }, [editing]);
  const { topic } = room.shared;
  if (editing) {
    return html`<${TopicForm} key=${room.id} room=${room} shared=${shared}
      onDone=${() => setEditing(false)} />`;
  }
  if (!room.mayModerate) return topic && html`<p class="topic" title=${topic}>${topic}</p>`;
  return html`<button class="topic" ref=${opens} title=${topic || undefined}
    aria-label=${topic ? `Topic: ${topic}. Edit` : "Set a topic"}
    onClick=${() => setEditing(true)}>
    <span>${topic || "Set a topic"}</span><${Icon} name="edit" /></button>`;
}

function NewName({ room, chat }) {
  const [name, setName] = useState(room.name);
  const [refusal, setRefusal] = useState("");
  const rename = (event) => {
    event.preventDefault();
    const wanted = name.trim();
    if (wanted && wanted !== room.name) chat.renameRoom(room, wanted, setRefusal);
  };
  return html`<form class="renaming" onSubmit=${rename}>
    <label class="hidden" for="new-name">New name of this room</label>
    <input id="new-name" value=${name} autocomplete="off"
      onInput=${(event) => setName(event.target.value)} />
    <button>Rename this room</button>
    ${refusal && html`<p class="refusal" role="alert">${refusal}</p>`}
  </form>`;
}

export function About({ room, shared }) {
  const { topic, description } = room.shared;
  return html`<div class="about-room">
    ${topic && html`<p class="about-topic"><${Links} text=${topic} /></p>`}
    ${description && html`<p class="description"><${Links} text=${description} /></p>`}
    ${
      !topic &&
      !description &&
      html`<p class="none">Nothing is said about this room${
        room.mayModerate ? " yet: set a topic below its name." : "."
      }</p>`
    }
    ${room.mayModerate && html`<${NewName} key=${room.id} room=${room} chat=${shared.chat} />`}
    ${
      room.mayModerate &&
      !room.closed &&
      html`<p class="closing"><button type="button"
      onClick=${() => shared.chat.closeRoom(room, true)}>Close this room</button>
      It takes no messages then, until a moderator opens it again.</p>`
    }</div>`;
}
