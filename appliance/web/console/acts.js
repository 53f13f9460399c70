// What an operator may do: a small menu beside a row, a dialog with the one sentence of what will
// happen, and the list of what was begun. The node decides what is offered and why it is refused;
// nothing here is called done before the node has seen it.
//
//      row's button --Enter--> menu --Enter--> dialog --Enter--> list
//                 <--Escape--      <--Escape--        (the name is typed first where it is asked)

import { html, useLayoutEffect, useRef, useState } from "../markup.js";

const MENU_WIDTH_PX = 320;
const EDGE_PX = 8; // between a menu and the window's edge
const moment = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });
const TONES = { running: "faint", done: "good", failed: "bad", "not seen": "bad" };

const KINDS = { site: "Site", node: "Node", process: "Process", shard: "Shard", member: "Member" };

export const keyOf = (offer) => `${offer.act} ${JSON.stringify(offer.about)}`;

// The button of a row; nothing where nothing is offered.
export function ActButton({ row, isOpen, onOpen }) {
  if (!row || row.acts.length === 0) return null;
  return html`<button class="acts-button" aria-haspopup="menu" aria-expanded=${isOpen}
    aria-label=${`Acts on ${row.subject}`} title=${`Acts on ${row.subject}`}
    onClick=${(event) => onOpen(event.currentTarget)}><span aria-hidden="true">⋯</span></button>`;
}

// Under the button, or over it where there is more room, and never beyond the window.
function putBeside(menu, button) {
  const at = button.getBoundingClientRect();
  const width = Math.min(MENU_WIDTH_PX, innerWidth - 2 * EDGE_PX);
  menu.style.width = `${width}px`;
  const left = Math.max(EDGE_PX, Math.min(at.right - width, innerWidth - width - EDGE_PX));
  const height = menu.offsetHeight;
  const isUnder = at.bottom + height + 2 * EDGE_PX <= innerHeight || at.top < height;
  const top = isUnder ? at.bottom + 4 : at.top - height - 4;
  menu.style.left = `${left}px`;
  menu.style.top = `${Math.max(EDGE_PX, Math.min(top, innerHeight - height - EDGE_PX))}px`;
}

// The acts of one row, beside the button `from`. Refused ones stay, with the reason.
export function ActMenu({ row, from, onChoose, onClose }) {
  const box = useRef(null);
  const items = () => [...box.current.querySelectorAll("[role=menuitem]")];
  useLayoutEffect(() => {
    const put = () => putBeside(box.current, from);
    put();
    items()[0]?.focus({ preventScroll: true });
    addEventListener("scroll", put, true);
    addEventListener("resize", put);
    return () => {
      removeEventListener("scroll", put, true);
      removeEventListener("resize", put);
    };
  }, []);
  const onKey = (event) => {
    const all = items();
    const here = all.indexOf(document.activeElement);
    const to = {
      ArrowDown: (here + 1) % all.length,
      ArrowUp: (here - 1 + all.length) % all.length,
      Home: 0,
      End: all.length - 1,
    }[event.key];
    if (to !== undefined) all[to].focus({ preventScroll: true });
    else if (event.key === "Escape") onClose(true);
    else if (event.key === "Tab") onClose(true);
    else return;
    event.preventDefault();
  };
  const onBlur = (event) => {
    if (box.current === null) return; // it is being taken away
    if (!box.current.contains(event.relatedTarget) && event.relatedTarget !== from) onClose(false);
  };
  return html`<div class="menu" role="menu" aria-label=${`Acts on ${row.subject}`} ref=${box}
    onKeyDown=${onKey} onFocusOut=${onBlur}>${Object.entries(KINDS).map(([kind, title]) => {
      const offers = row.acts.filter((offer) => offer.kind === kind);
      return offers.length > 0 && html`<div role="group" aria-label=${title} key=${kind}>
        <p class="kind" aria-hidden="true">${title}</p>${offers.map(
          (offer) => html`<button key=${keyOf(offer)} role="menuitem" tabindex="-1"
            aria-disabled=${offer.refusal !== ""}
            onClick=${() => offer.refusal === "" && onChoose(offer)}>
            <span class="label">${offer.label}</span>
            ${offer.refusal && html`<span class="why">${offer.refusal}</span>`}</button>`,
        )}</div>`;
    })}</div>`;
}

// `offer` is as the node has it now, null when it is offered no more; `first` as it was chosen.
export function ActDialog({ offer, first, feed, onClose }) {
  const box = useRef(null);
  const [typed, setTyped] = useState("");
  const [error, setError] = useState("");
  const [asking, setAsking] = useState(false);
  const shown = offer ?? first;
  const usual = () => Object.fromEntries(first.asks.map((asked) => [asked.name, asked.usual]));
  const [written, setWritten] = useState(usual);
  useLayoutEffect(() => {
    box.current.showModal();
    box.current.querySelector("input, .primary")?.focus();
  }, []);
  const leave = () => {
    box.current.close(); // else what is behind it takes no focus
    onClose();
  };
  const gone = offer === null ? "It is not offered any more: the site has changed." : "";
  const why = gone || shown.refusal || error;
  const isWritten = shown.asks.every((asked) => written[asked.name].trim() !== "");
  const meant = isWritten && (shown.typed === "" || typed === shown.typed);
  // A key that is held down chooses in the menu; it does not also confirm.
  const onKey = (event) => event.key === "Enter" && event.repeat && event.preventDefault();
  const submit = async (event) => {
    event.preventDefault();
    if (!meant || asking || gone || shown.refusal) return;
    setAsking(true);
    const refused = await feed.act(shown.act, shown.about, typed, written);
    setAsking(false);
    setError(refused);
    if (refused === "") leave();
  };
  return html`<dialog class="act" ref=${box} aria-labelledby="act-title"
    aria-describedby="act-sentence" onKeyDown=${onKey}
    onCancel=${(event) => { event.preventDefault(); leave(); }}>
    <form onSubmit=${submit}>
      <h2 id="act-title">${shown.label.replace("…", "")}</h2>
      <p id="act-sentence">${shown.sentence}</p>
      ${shown.asks.map((asked) => html`<label for=${`act-${asked.name}`}>${asked.label}</label>
        <input id=${`act-${asked.name}`} value=${written[asked.name]} autocomplete="off"
          spellcheck=${false} onInput=${(event) => {
            setWritten({ ...written, [asked.name]: event.target.value });
            setError("");
          }} />`)}
      ${shown.typed && html`<label for="act-typed">Type <b>${shown.typed}</b> to say that it is
        meant</label><input id="act-typed" value=${typed} autocomplete="off" spellcheck=${false}
        onInput=${(event) => setTyped(event.target.value)} />`}
      ${why && html`<p class="refusal" role="alert">${why}</p>`}
      <p class="hint">In a terminal: <code>${shown.verb}</code></p>
      <div class="choice"><button type="button" onClick=${leave}>Cancel</button>
        <button class="primary" disabled=${!meant || asking || gone !== "" || shown.refusal !== ""}>
          ${asking ? "Asking…" : "Do it"}</button></div>
    </form></dialog>`;
}

// What an act gave is shown once and kept nowhere; a file goes to the browser's downloads.
function GivenText({ text, onClose }) {
  const box = useRef(null);
  useLayoutEffect(() => {
    box.current.showModal();
    box.current.querySelector("textarea").select();
  }, []);
  const leave = () => {
    box.current.close();
    onClose();
  };
  return html`<dialog class="act" ref=${box} aria-labelledby="given-title"
    onCancel=${(event) => { event.preventDefault(); leave(); }}>
    <form onSubmit=${(event) => { event.preventDefault(); leave(); }}>
      <h2 id="given-title">Shown once</h2>
      <textarea readonly rows="8" aria-label="What it gave">${text}</textarea>
      <p class="hint">Copy it now: it is gone when this is closed.</p>
      <div class="choice"><button class="primary">Close</button></div>
    </form></dialog>`;
}

function save({ file, name }) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(file);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

function Given({ act, feed }) {
  const [text, setText] = useState(null);
  const [error, setError] = useState("");
  const take = async () => {
    const given = await feed.given(act.number);
    if (given.file) save(given);
    else if (given.error) setError(given.error);
    else setText(given.text);
  };
  return html`${act.gives && html`<button class="given" onClick=${take}>
      ${act.gives === "file" ? "Download" : "Show once"}</button>`}
    ${error && html`<span class="refusal" role="alert">${error}</span>`}
    ${text !== null && html`<${GivenText} text=${text} onClose=${() => setText(null)} />`}`;
}

// What was begun, the newest first.
export function ActList({ acts, waiting, feed }) {
  if (acts.length === 0) return null;
  return html`<section class="done" aria-label="Acts"><h2>Acts</h2>
    ${waiting > 0 && html`<p class="hint">${waiting === 1 ? "One audit record waits" : `${waiting}
      audit records wait`} for shard 0 to commit again.</p>`}
    <ol aria-live="polite" tabindex="0" aria-label="Acts, the newest first">${acts.toReversed().map(
      (act) => html`<li key=${act.number} data-act=${act.number} data-state=${act.state}
        class=${`tone-${TONES[act.state]}`}><span class="lamp" />
        <time>${moment.format(act.at_ms)}</time> <b>${act.what}</b>
        ${" "}<span class="state">${act.state}</span> <span class="words">${act.words}</span>
        ${" "}<${Given} act=${act} feed=${feed} />
        ${" "}<span class="who">${act.who}, from ${act.came_from};
          ${" "}${act.recorded ? "in the audit" : act.state === "running" ? "" : "audit waits"}
        </span></li>`,
    )}</ol></section>`;
}
