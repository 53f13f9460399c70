// Who is signed in, and the name that others are shown.

import { html, Icon, useLayoutEffect, useRef, useState } from "../markup.js";

function NameForm({ shared, onDone }) {
  const [name, setName] = useState(shared.profiles.get(shared.chat.author)?.name ?? "");
  const [refusal, setRefusal] = useState("");
  const field = useRef(null);
  useLayoutEffect(() => field.current.focus(), []);
  const save = (event) => {
    event.preventDefault();
    shared.setName(name.trim(), (said) => (said ? setRefusal(said) : onDone()));
  };
  return html`<form class="name-form" onSubmit=${save}
      onKeyDown=${(event) => event.key === "Escape" && onDone()}>
    <label for="own-name">Name that others see</label>
    <input id="own-name" ref=${field} value=${name} maxlength="60" autocomplete="off"
      placeholder=${shared.chat.author} onInput=${(event) => setName(event.target.value)} />
    ${refusal && html`<p class="refusal" role="alert">${refusal}</p>`}
    <div><button class="primary">Save</button>
      <button type="button" onClick=${onDone}>Cancel</button></div>
  </form>`;
}

export function User({ chat, onSignOut }) {
  const [editing, setEditing] = useState(false);
  const { shared, author } = chat;
  const name = shared.nameOf(author);
  return html`${
    editing && html`<${NameForm} shared=${shared} onDone=${() => setEditing(false)} />`
  }
    <div class="user"><span class="who">${name}
      ${name !== author && html`<span class="login">${author}</span>`}</span>
      ${
        shared.exists &&
        html`<button class="edit-name" aria-label="Edit your name" title="Edit your name"
        aria-expanded=${editing ? "true" : "false"}
        onClick=${() => setEditing(!editing)}><${Icon} name="edit" /></button>`
      }
      <button onClick=${onSignOut}>Sign out</button></div>`;
}
