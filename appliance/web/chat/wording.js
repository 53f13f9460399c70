// How times, counts, names and colours are said.

const MINUTE_MS = 60_000;
const GROUP_MS = 5 * MINUTE_MS; // a pause longer than this starts a new block

const timeOf = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const dayOf = new Intl.DateTimeFormat(undefined, {
  weekday: "long",
  day: "numeric",
  month: "long",
});
const dayOfYear = new Intl.DateTimeFormat(undefined, {
  weekday: "long",
  day: "numeric",
  month: "long",
  year: "numeric",
});
const momentOf = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "medium" });
const countOf = new Intl.NumberFormat();

export const time = (ms) => timeOf.format(ms);
export const moment = (ms) => momentOf.format(ms);
export const count = (number) => countOf.format(number);

export function sameDay(aMs, bMs) {
  return new Date(aMs).toDateString() === new Date(bMs).toDateString();
}

export function day(ms, nowMs) {
  if (sameDay(ms, nowMs)) return "Today";
  if (sameDay(ms, nowMs - 24 * 60 * MINUTE_MS)) return "Yesterday";
  return (new Date(ms).getFullYear() === new Date(nowMs).getFullYear() ? dayOf : dayOfYear).format(
    ms,
  );
}

export function sameBlock(aMs, bMs) {
  return bMs - aMs < GROUP_MS && sameDay(aMs, bMs);
}

export function plural(number, one, many) {
  return `${count(number)} ${number === 1 ? one : many}`;
}

export function initials(name) {
  const words = name.split(/[^\p{L}\p{N}]+/u).filter(Boolean);
  const letters =
    words.length > 1 ? words[0][0] + words[1][0] : [...(words[0] ?? "?")].slice(0, 2).join("");
  return letters.toUpperCase();
}

// One of twelve hues for a name, the same everywhere (FNV-1a).
export function hue(name) {
  let digest = 2166136261;
  for (let i = 0; i < name.length; i += 1) {
    digest = Math.imul(digest ^ name.charCodeAt(i), 16777619) >>> 0;
  }
  return (digest >>> 8) % 12;
}
