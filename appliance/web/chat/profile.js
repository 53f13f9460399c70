// Who is signed in, and the name and picture that others are shown.

import { Face } from "./face.js";
import { html, Icon, useLayoutEffect, useRef, useState } from "../markup.js";
import { pictureFrom } from "./picture.js";
import { hue } from "./wording.js";

function PictureField({ author, name, picture, onPicture, onRefusal }) {
  const choose = async (event) => {
    const [file] = event.target.files;
    if (!file) return;
    const { text, refusal = "" } = await pictureFrom(file);
    if (text) onPicture(text);
    onRefusal(refusal);
  };
  return html`<div class=${`own-picture hue-${hue(author)}`}>
    <${Face} as="face" name=${name || author} picture=${picture} />
    <input id="own-picture" class="hidden" type="file" accept="image/*" onChange=${choose} />
    <label class="button" for="own-picture">
      ${picture ? "Another one" : "Choose a picture"}</label>
    ${
      picture &&
      html`<button type="button" aria-label="Remove the picture" title="Remove the picture"
      onClick=${() => onPicture("")}><${Icon} name="close" /></button>`
    }
  </div>`;
}

function ProfileForm({ shared, onDone }) {
  const { author } = shared.chat;
  const before = shared.profiles.get(author) ?? {};
  const [name, setName] = useState(before.name ?? "");
  const [picture, setPicture] = useState(before.picture ?? "");
  const [refusal, setRefusal] = useState("");
  const field = useRef(null);
  useLayoutEffect(() => field.current.focus(), []);
  const save = (event) => {
    event.preventDefault();
    const wished = { name: name.trim(), picture };
    shared.setProfile(wished, (said) => (said ? setRefusal(said) : onDone()));
  };
  const onKeyDown = (event) => {
    if (event.key !== "Escape") return;
    event.stopPropagation();
    onDone();
  };
  return html`<form class="name-form" onSubmit=${save} onKeyDown=${onKeyDown}>
    <label for="own-name">Name that others see</label>
    <input id="own-name" ref=${field} value=${name} maxlength="60" autocomplete="off"
      placeholder=${author} onInput=${(event) => setName(event.target.value)} />
    <${PictureField} author=${author} name=${name} picture=${picture} onPicture=${setPicture}
      onRefusal=${setRefusal} />
    ${refusal && html`<p class="refusal" role="alert">${refusal}</p>`}
    <div><button class="primary">Save</button>
      <button type="button" onClick=${onDone}>Cancel</button></div>
  </form>`;
}

export function User({ chat, onSignOut }) {
  const [editing, setEditing] = useState(false);
  const opens = useRef(null);
  const { shared, author } = chat;
  const name = shared.nameOf(author);
  const done = () => {
    setEditing(false);
    opens.current?.focus();
  };
  return html`${editing && html`<${ProfileForm} shared=${shared} onDone=${done} />`}
    <div class=${`user hue-${hue(author)}`}>
      <${Face} as="face" name=${name} picture=${shared.pictureOf(author)} />
      <span class="who"><span class="own-name">${name}</span>
      ${name !== author && html`<span class="login">${author}</span>`}</span>
      ${
        shared.knowsOwnProfile &&
        html`<button class="edit-name" ref=${opens} aria-label="Edit your name and picture"
        title="Edit your name and picture" aria-expanded=${editing ? "true" : "false"}
        onClick=${() => setEditing(!editing)}><${Icon} name="edit" /></button>`
      }
      <button onClick=${onSignOut}>Sign out</button></div>`;
}
