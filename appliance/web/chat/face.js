// A person's picture; without one, and until it is there, two letters on a colour.

import { html, useLayoutEffect, useRef, useState } from "../markup.js";
import { bitmapOf, draw, SIDE_PX } from "./picture.js";
import { initials } from "./wording.js";

function Portrait({ picture }) {
  const canvas = useRef(null);
  const [drawn, setDrawn] = useState(false);
  useLayoutEffect(() => {
    let current = true;
    bitmapOf(picture).then((bitmap) => {
      if (!current) return;
      if (bitmap) draw(canvas.current, bitmap);
      setDrawn(bitmap !== null);
    });
    return () => {
      current = false;
    };
  }, [picture]);
  return html`<canvas class="portrait" ref=${canvas} width=${SIDE_PX} height=${SIDE_PX}
    hidden=${!drawn} />`;
}

// For the eye alone: the name stands beside it. `as`: the class of the box.
export function Face({ as, name, picture, children }) {
  return html`<span class=${as} aria-hidden="true">${initials(name)}
    ${picture && html`<${Portrait} picture=${picture} />`}${children}</span>`;
}
