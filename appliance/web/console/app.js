// The console page: what is wrong, two curves, the tables that the terminal shows as well, and the
// curves of the past.

import { html, render, useLayoutEffect, useRef, useState } from "../markup.js";
import { ActButton, ActDialog, ActList, ActMenu, keyOf } from "./acts.js";
import { Chart, LATENCY, RATE } from "./charts.js";
import { PastCurves } from "./curves.js";
import { Feed } from "./feed.js";

const dated = new Intl.DateTimeFormat(undefined, { dateStyle: "short", timeStyle: "medium" });
const clock = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });

function SignIn({ feed }) {
  const [secret, setSecret] = useState("");
  const [error, setError] = useState("");
  const field = useRef(null);
  useLayoutEffect(() => field.current.focus(), []);
  const submit = async (event) => {
    event.preventDefault();
    setError(await feed.signIn(secret));
  };
  return html`<main class="sign-in"><form onSubmit=${submit}>
    <img src="/web/icon.svg" width="44" height="44" alt="" />
    <h1>Console</h1>
    <label for="secret">One-time secret</label>
    <input id="secret" ref=${field} value=${secret} autocomplete="off" spellcheck=${false}
      placeholder="ABCD-EFGH-JKLM-NPQR"
      onInput=${(event) => { setSecret(event.target.value); setError(""); }} />
    ${error && html`<p class="refusal" role="alert">${error}</p>`}
    <button class="primary" disabled=${secret.trim() === ""}>Sign in</button>
    <p class="hint">The node prints it when it starts, and a new one when it was used.</p>
  </form></main>`;
}

function Table({ table, offers, opened, onOpen }) {
  const aligned = (i) => (table.numbers.includes(i) ? "number" : "");
  const acts = (at) => offers && html`<td class="acts"><${ActButton} row=${offers[at]}
    isOpen=${opened?.title === table.title && opened.at === at}
    onOpen=${(from) => onOpen({ title: table.title, at, from })} /></td>`;
  return html`<section class="table"><h2>${table.title}</h2><div class="scroll"><table>
    <thead><tr>${table.columns.map(
      (name, i) => html`<th key=${name} scope="col" class=${aligned(i)}>${name}</th>`,
    )}${offers && html`<td class="acts" />`}</tr></thead>
    <tbody>${table.rows.map(
      (row, at) => html`<tr key=${at}>${row.map(
        ([text, tone], i) => html`<td key=${i} class=${`${aligned(i)} tone-${tone}`}>${text}</td>`,
      )}${acts(at)}</tr>`,
    )}</tbody>
  </table></div></section>`;
}

// What holds now: what it means, what to do, and the act that does it. It ends by itself.
function Alarms({ table, alarms, feed, onChoose }) {
  const [error, setError] = useState("");
  if (alarms.length === 0) {
    return html`<p class="alarms quiet" role="status"><span class="lamp" />No alarms</p>`;
  }
  const see = async (alarm) =>
    setError(await feed.act("alarm-seen", {}, "", { alarm: alarm.name, subject: alarm.subject }));
  return html`<ul class="alarms" role="alert">${alarms.map(
    (alarm, at) => html`<li key=${`${alarm.name} ${alarm.subject}`}
      class=${`alarm tone-${alarm.severity}`} data-alarm=${alarm.name}><span class="lamp" />
      <b>${alarm.name.replaceAll("_", " ")}</b> <span>${alarm.subject}</span>
      <span class="what">${alarm.text}</span> <time>${table.rows[at][3][0]}</time>
      <details><summary>What to do</summary><p>${alarm.means} ${alarm.do}</p></details>
      <span class="remedy">${alarm.acts.map((offer) => html`<button key=${keyOf(offer)}
        disabled=${offer.refusal !== ""} title=${offer.refusal}
        onClick=${(event) => onChoose(offer, event.currentTarget)}>${offer.label}</button>`)}
      ${alarm.seen_by
        ? html`<span class="seen">seen by ${alarm.seen_by}</span>`
        : html`<button onClick=${() => see(alarm)}
          aria-label=${`Seen: ${alarm.name} ${alarm.subject}`}>Seen</button>`}</span></li>`,
  )}${error && html`<li class="refusal" role="alert">${error}</li>`}</ul>`;
}

// What is over, of the last day, the newest first.
function PastAlarms({ alarms }) {
  if (alarms.length === 0) return null;
  const moment = (ms) => dated.format(ms);
  return html`<details class="past"><summary>Alarms of the last day: ${alarms.length}</summary>
    <ol tabindex="0" aria-label="Alarms that are over, the newest first">${alarms.map(
      (alarm, at) => html`<li key=${at} data-past=${alarm.name}>
        <time>${moment(alarm.raised_ms)} to ${moment(alarm.cleared_ms)}</time>
        ${" "}<b>${alarm.name.replaceAll("_", " ")}</b> ${alarm.subject}:
        ${" "}<span class="words">${alarm.text}</span>
        ${alarm.seen_by && html` <span class="who">seen by ${alarm.seen_by}</span>`}</li>`,
    )}</ol></details>`;
}

function Screen({ feed }) {
  const { model, points } = feed;
  const [alarms, ...tables] = model.tables;
  const fresh = feed.state === "following";
  const [menu, setMenu] = useState(null); // {title, at, from}: the button it was opened by
  const [chosen, setChosen] = useState(null); // {title, key, from}
  const offers = model.offers ?? {};
  const row = menu && offers[menu.title]?.[menu.at];
  const rows = chosen?.title === null ? model.alarms : offers[chosen?.title] ?? [];
  // title: null for an act that an alarm has beside it
  const offered = rows.flatMap((each) => each.acts).find((each) => keyOf(each) === chosen?.key);
  const close = (setter, from, back) => {
    setter(null);
    if (back) from.focus();
  };
  return html`<div class="console">
    <header class="top">
      <img src="/web/icon.svg" width="24" height="24" alt="" />
      <h1>TigerChat <span>console</span></h1>
      <span class="age" data-fresh=${fresh ? "yes" : "no"} role="status"><span class="lamp" />
        ${fresh ? "" : "no news since "}<time>${clock.format(model.at)}</time></span>
      <${ActButton} row=${offers.Site?.[0]} isOpen=${menu?.title === "Site"}
        onOpen=${(from) => setMenu({ title: "Site", at: 0, from })} />
      <button onClick=${() => feed.signOut()}>Sign out</button>
    </header>
    <main>
      <${Alarms} table=${alarms} alarms=${model.alarms} feed=${feed}
        onChoose=${(first, from) => setChosen({ title: null, key: keyOf(first), first, from })} />
      <${ActList} acts=${model.operator_acts ?? []} waiting=${model.audit_waiting ?? 0}
        feed=${feed} />
      <${PastAlarms} alarms=${model.past_alarms ?? []} />
      <div class="charts"><${Chart} chart=${RATE} points=${points} />
        <${Chart} chart=${LATENCY} points=${points} /></div>
      ${tables.map((table) => html`<${Table} key=${table.title} table=${table}
        offers=${offers[table.title]} opened=${menu} onOpen=${setMenu} />`)}
      <${PastCurves} feed=${feed} />
      <p class="hint">site ${model.cluster}; the same tables in a terminal:
        ${" "}<code>tigerchat status --watch</code></p>
    </main>
    ${row && html`<${ActMenu} key=${`${menu.title} ${menu.at}`} row=${row} from=${menu.from}
      onClose=${(back) => close(setMenu, menu.from, back)}
      onChoose=${(offer) => {
        setChosen({ title: menu.title, key: keyOf(offer), first: offer, from: menu.from });
        setMenu(null);
      }} />`}
    ${chosen && html`<${ActDialog} key=${chosen.key} offer=${offered ?? null}
      first=${chosen.first} feed=${feed} onClose=${() => close(setChosen, chosen.from, true)} />`}
  </div>`;
}

function Page({ feed }) {
  if (feed.state === "outside") return html`<${SignIn} feed=${feed} />`;
  if (!feed.model) {
    return html`<p class="nothing">${feed.state === "stale" ? "No answer…" : "…"}</p>`;
  }
  return html`<${Screen} feed=${feed} />`;
}

const root = document.getElementById("page");
const feed = new Feed(() => {
  const bad = feed.model?.alarms.length ?? 0;
  document.title = `${bad ? `(${bad}) ` : ""}Console · TigerChat`;
  render(html`<${Page} feed=${feed} />`, root);
});
feed.check();
