// The past hour or day of shards, edges, disks and shippers: small curves, each with its figures in
// words. The line is the mean of each point's time, the area under it the most.

import { html, useEffect, useState } from "../markup.js";

const WIDTH = 240; // of a drawing, in its own units: it is as wide as its column
const HEIGHT = 44;
const ROOM = 1.08; // above the highest point
const GIB = 2 ** 30;

const SPANS = {
  hour: { label: "Hour", againMs: 15_000, moment: { timeStyle: "short" } },
  day: { label: "Day", againMs: 60_000, moment: { dateStyle: "short", timeStyle: "short" } },
};

// Runs of points that are known, as [first, behind the last].
export function runsOf(points) {
  const runs = [];
  points.forEach((point, i) => {
    if (point === null) return;
    if (runs.length > 0 && runs.at(-1)[1] === i) runs.at(-1)[1] = i + 1;
    else runs.push([i, i + 1]);
  });
  return runs;
}

const short = (number) => String(Math.round(number * 10) / 10);
const across = (i, points) => short((i * WIDTH) / points.length);
const up = (value, high) => short(HEIGHT - (value / (high * ROOM)) * HEIGHT);

// The path of a line through the middle of each point's time; a gap is a gap.
export function lineOf(points, high) {
  const at = (i) => `${across(i + 0.5, points)} ${up(points[i], high)}`;
  return runsOf(points).map(([from, to]) => {
    const rest = Array.from({ length: to - from - 1 }, (_, i) => `L${at(from + 1 + i)}`);
    return `M${at(from)}${rest.join("") || "h.1"}`;
  }).join("");
}

// The path of the area under the points, as wide as their times.
export function areaOf(points, high) {
  return runsOf(points).map(([from, to]) => {
    const steps = Array.from({ length: to - from }, (_, i) => from + i).map(
      (i) => `V${up(points[i], high)}H${across(i + 1, points)}`,
    );
    return `M${across(from, points)} ${HEIGHT}${steps.join("")}V${HEIGHT}Z`;
  }).join("");
}

export function said(value, unit) {
  if (value === null || value === undefined) return "–";
  const [figure, word] = unit === "bytes" ? [value / GIB, "GiB"] : [value, unit];
  const digits = figure === 0 || figure >= 100 ? 0 : figure >= 10 ? 1 : 2;
  const text = figure.toLocaleString(undefined, { maximumFractionDigits: digits });
  return word === "/s" ? text + word : `${text} ${word}`.trim();
}

// What a curve says, in figures: now (of the two newest points), and how high or low it was.
export function figuresOf({ mean, most, unit }) {
  const known = mean.filter((value) => value !== null);
  const isLow = unit === "bytes"; // what is left: the least of it is what matters
  return {
    now: mean.at(-1) ?? mean.at(-2) ?? null,
    extreme: isLow ? Math.min(...known) : Math.max(...most.filter((value) => value !== null)),
    word: isLow ? "least" : "most",
    high: Math.max(...most.filter((value) => value !== null)) || 1,
  };
}

function Curve({ subject, curve, span }) {
  const { now, extreme, word, high } = figuresOf(curve);
  const words =
    `${subject}, ${curve.title}, the past ${span}: now ${said(now, curve.unit)}, ` +
    `${word} ${said(extreme, curve.unit)}`;
  return html`<figure data-figure=${curve.figure}>
    <figcaption><span class="title">${curve.title}</span>
      ${" "}<b>${said(now, curve.unit)}</b>
      ${" "}<span class="extreme">${word} ${said(extreme, curve.unit)}</span></figcaption>
    <svg viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img"
      aria-label=${words}><title>${words}</title>
      <path class="most" d=${areaOf(curve.most, high)} />
      <path class="mean" d=${lineOf(curve.mean, high)} /></svg>
  </figure>`;
}

function period(drawn) {
  const moment = new Intl.DateTimeFormat(undefined, SPANS[drawn.span].moment);
  const points = drawn.subjects[0]?.curves[0].mean.length ?? 0;
  const end = drawn.begin + points * drawn.step_s;
  return `${moment.format(drawn.begin * 1000)} to ${moment.format(end * 1000)}`;
}

export function PastCurves({ feed }) {
  const [span, setSpan] = useState("hour");
  const [drawn, setDrawn] = useState(null);
  useEffect(() => {
    let isOver = false;
    let timer = 0;
    const ask = async () => {
      const found = await feed.curves(span);
      if (isOver) return;
      if (found) setDrawn(found);
      timer = setTimeout(ask, SPANS[span].againMs);
    };
    ask();
    return () => {
      isOver = true;
      clearTimeout(timer);
    };
  }, [span]);
  const shown = drawn?.span ?? span;
  const subjects = drawn?.subjects ?? [];
  return html`<section class="past-curves" data-span=${shown}>
    <header><h2>The past ${shown}</h2>
      <div role="group" aria-label="How far back the curves go">${Object.entries(SPANS).map(
        ([name, { label }]) => html`<button key=${name} aria-pressed=${span === name}
          onClick=${() => setSpan(name)}>${label}</button>`,
      )}</div>
      ${subjects.length > 0 && html`<p class="hint">${period(drawn)}; line: mean, area: most.
        ${drawn.left_out > 0 && ` ${drawn.left_out} curves are more than are kept.`}</p>`}
    </header>
    ${drawn && subjects.length === 0 && html`<p class="hint none">Nothing is known of it.</p>`}
    <div class="subjects">${subjects.map(
      ({ subject, curves }) => html`<section key=${subject} class="subject"><h3>${subject}</h3>
        ${curves.map((curve) => html`<${Curve} key=${curve.figure} subject=${subject}
          curve=${curve} span=${shown} />`)}</section>`,
    )}</div>
  </section>`;
}
