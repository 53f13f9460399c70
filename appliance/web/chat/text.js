// Texts as the log stores them: records of at most 2048 bytes of UTF-8.

export const BODY_SIZE_MAX = 2048; // bytes of one record's body
export const TEXT_SIZE_MAX = 65536; // bytes of one text in the composer: 32 records
const PART_SIZE_FULL = BODY_SIZE_MAX - BODY_SIZE_MAX / 4; // a part that was split off has as many

const encoder = new TextEncoder();

export function sizeOf(text) {
  return encoder.encode(text).length;
}

// Characters as a reader sees them (an emoji with its modifiers is one); code points in old
// browsers.
function* charactersOf(text) {
  if (typeof Intl.Segmenter === "function") {
    for (const part of new Intl.Segmenter(undefined, { granularity: "grapheme" }).segment(text))
      yield part.segment;
  } else {
    yield* text;
  }
}

// `text` in pieces of at most `sizeMax` bytes, cut between characters, after a space or newline of
// the last quarter if there is one; joined they are `text` again. A single character that is very
// long (hundreds of joined code points) is cut between code points.
export function splitText(text, sizeMax = BODY_SIZE_MAX) {
  if (sizeOf(text) <= sizeMax) return [text];
  const parts = [];
  let part = "";
  let size = 0;
  const add = (piece, pieceSize) => {
    if (size + pieceSize > sizeMax) {
      const cut = cutOf(part, sizeMax);
      parts.push(part.slice(0, cut));
      part = part.slice(cut);
      size = sizeOf(part);
    }
    part += piece;
    size += pieceSize;
  };
  for (const character of charactersOf(text)) {
    const characterSize = sizeOf(character);
    if (characterSize <= sizeMax / 4) add(character, characterSize);
    else for (const point of character) add(point, sizeOf(point));
  }
  parts.push(part);
  return parts;
}

// Where to cut a full part: behind its last space or newline, unless that lies too far in front.
function cutOf(part, sizeMax) {
  const cut = 1 + Math.max(part.lastIndexOf(" "), part.lastIndexOf("\n"));
  return sizeOf(part.slice(0, cut)) >= sizeMax - sizeMax / 4 ? cut : part.length;
}

// Whether `record` continues the text whose newest part is `before` and whose first part is
// `first`: the device numbered them in one go, the earlier part is full, and the later one names
// the first as its parent.
export function continuesText(record, before, first) {
  return (
    record.parent_id === first.msg_id &&
    record.client_id === before.client_id &&
    record.client_seq === before.client_seq + 1 &&
    isFull(before.body)
  );
}

// Whether a body is as long as one that was split off.
export function isFull(body) {
  return sizeOf(body) >= PART_SIZE_FULL;
}

// `text` in pieces of plain text and links: [{ text, href? }]. Only http and https become links.
export function linksOf(text) {
  const pieces = [];
  let end = 0;
  for (const match of text.matchAll(/https?:\/\/[^\s<>"'`]+[^\s<>"'`.,;:!?)\]}]/g)) {
    if (match.index > end) pieces.push({ text: text.slice(end, match.index) });
    pieces.push({ text: match[0], href: match[0] });
    end = match.index + match[0].length;
  }
  if (end < text.length) pieces.push({ text: text.slice(end) });
  return pieces;
}

// `text` in plain pieces, inline code and blocks of code: [{ kind: "text" | "code" | "block",
// text }]. A block lies between two lines of ``` (a word may follow the first: the language); a
// fence nobody closed is text. Inline code lies between two single backquotes of one line.
export function piecesOf(text) {
  const pieces = [];
  let end = 0;
  for (const match of text.matchAll(/^```[^\S\n]*[\w+#.-]*[^\S\n]*\n([^]*?)^```[^\S\n]*$\n?/gm)) {
    // The block begins a line of its own, so the newline in front of it is not shown.
    pieces.push(...inlineOf(text.slice(end, match.index).replace(/\n$/, "")));
    pieces.push({ kind: "block", text: match[1].replace(/\n$/, "") });
    end = match.index + match[0].length;
  }
  pieces.push(...inlineOf(text.slice(end)));
  return pieces;
}

function inlineOf(text) {
  const pieces = [];
  let end = 0;
  for (const match of text.matchAll(/(?<!`)`([^`\n]+)`(?!`)/g)) {
    if (match.index > end) pieces.push({ kind: "text", text: text.slice(end, match.index) });
    pieces.push({ kind: "code", text: match[1] });
    end = match.index + match[0].length;
  }
  if (end < text.length) pieces.push({ kind: "text", text: text.slice(end) });
  return pieces;
}
