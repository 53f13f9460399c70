// Preact and htm, bound once: components are functions, markup is a template string, text stays
// text.

import htm from "./vendor/htm.js";
import { h } from "./vendor/preact.js";

export { Component, Fragment, render } from "./vendor/preact.js";
export { useEffect, useLayoutEffect, useMemo, useRef, useState } from "./vendor/hooks.js";
export const html = htm.bind(h);

const PATHS = {
  reply: "M7 5 3 9l4 4M3 9h7a4 4 0 0 1 4 4v1",
  send: "M3 9h10M9 4.5 13.5 9 9 13.5",
  plus: "M9 3.5v11M3.5 9h11",
  menu: "M3 5h12M3 9h12M3 13h12",
  close: "M4.5 4.5l9 9M13.5 4.5l-9 9",
  down: "M9 3.5v10M4.5 9.5 9 14l4.5-4.5",
  pending: "M9 5.5V9l2.2 1.6",
  acknowledged: "M4 9.5l3.2 3.2L14 5.8",
  failed: "M9 5v5M9 12.6v.2",
  smile: "M6.2 10.4a3 3 0 0 0 5.6 0M7 7v.3M11 7v.3",
  pin: "M6.5 3h5M7.2 3l-.4 4.6L4.5 10.5h9l-2.3-2.9-.4-4.6M9 10.5V15.5",
  people:
    "M7 9.2a2.6 2.6 0 1 0 0-5.2 2.6 2.6 0 0 0 0 5.2M2.3 15a4.7 4.7 0 0 1 9.4 0" +
    "M12 4.2a2.6 2.6 0 0 1 0 4.8M13.4 11.3A4.7 4.7 0 0 1 15.7 15",
  about: "M9 8.2V13M9 5.2v.3",
  edit: "M4 14l.7-3.2 6.9-6.9 2.5 2.5-6.9 6.9zM10 5.5 12.5 8",
};

// An icon of 18 by 18; decoration only, so whoever uses it gives the words.
export function Icon({ name }) {
  const ring = ["pending", "failed", "smile", "about"].includes(name);
  return html`<svg class="icon icon-${name}" viewBox="0 0 18 18" aria-hidden="true"
    focusable="false">
    ${ring && html`<circle cx="9" cy="9" r="6.5" />`}<path d=${PATHS[name]} /></svg>`;
}
