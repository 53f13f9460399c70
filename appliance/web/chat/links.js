// What people wrote, with its links to be followed; all else of it stays text.

import { html } from "../markup.js";
import { linksOf } from "./text.js";

export function Links({ text }) {
  return linksOf(text).map((piece) =>
    piece.href
      ? html`<a href=${piece.href} target="_blank" rel="noopener noreferrer">${piece.text}</a>`
      : piece.text,
  );
}
