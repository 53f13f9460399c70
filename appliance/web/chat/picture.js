// Pictures of people: a small JPEG or PNG as text, in a profile.
//
//      data:image/jpeg;base64,...     at most TEXT_MAX characters, SIDE_PX_MAX pixels a side
//
// What others put there is looked at before a browser is to decode it: a few bytes can claim a
// picture of gigabytes. It is drawn on a canvas and never given an address.

const TEXT_MAX = 4096;
const SIDE_PX_MAX = 128;
export const SIDE_PX = 64; // of those we make, and as they are drawn
const OWN_TEXT_MAX = 3000; // of those we make: everybody in a room is sent everybody's
const FILE_SIZE_MAX = 32 * 1024 * 1024;
const QUALITIES = [0.85, 0.75, 0.65, 0.5, 0.35, 0.2];
const DECODED_MAX = 500; // kept, the oldest is forgotten

const ascii = (bytes, from, to) => String.fromCharCode(...bytes.slice(from, to));
const number = (bytes, at, size) =>
  bytes.slice(at, at + size).reduce((sum, byte) => sum * 256 + byte, 0);

function sizeOfPng(bytes) {
  if (ascii(bytes, 0, 8) !== "\x89PNG\r\n\x1a\n" || ascii(bytes, 12, 16) !== "IHDR") return null;
  return [number(bytes, 16, 4), number(bytes, 20, 4)];
}

function sizeOfJpeg(bytes) {
  if (number(bytes, 0, 2) !== 0xffd8) return null;
  for (let at = 2; at + 9 <= bytes.length; at += 2 + number(bytes, at + 2, 2)) {
    const marker = bytes[at + 1];
    if (bytes[at] !== 0xff || marker < 0xc0 || marker === 0xda) return null;
    const begins = marker <= 0xcf && ![0xc4, 0xc8, 0xcc].includes(marker); // a frame, with its size
    if (begins) return [number(bytes, at + 7, 2), number(bytes, at + 5, 2)];
  }
  return null;
}

const KINDS = [
  ["image/jpeg", sizeOfJpeg],
  ["image/png", sizeOfPng],
];

// The bytes of a picture that may be decoded, with their type; null: it is none.
export function pictureOf(text) {
  const found = KINDS.find(([type]) => text?.startsWith(`data:${type};base64,`));
  if (!found || text.length > TEXT_MAX) return null;
  const [type, sizeOf] = found;
  let bytes;
  try {
    bytes = Uint8Array.from(atob(text.slice(text.indexOf(",") + 1)), (each) => each.charCodeAt(0));
  } catch {
    return null;
  }
  const size = sizeOf([...bytes]);
  if (!size?.every((side) => side > 0 && side <= SIDE_PX_MAX)) return null;
  return { type, bytes };
}

const decoded = new Map(); // text -> promise of a bitmap, or of null

async function decode(text) {
  const picture = pictureOf(text);
  if (picture === null) return null;
  try {
    return await createImageBitmap(new Blob([picture.bytes], { type: picture.type }));
  } catch {
    return null; // damaged behind its head
  }
}

// A bitmap of the picture; null: it is none.
export function bitmapOf(text) {
  if (!decoded.has(text)) {
    decoded.set(text, decode(text));
    if (decoded.size > DECODED_MAX) decoded.delete(decoded.keys().next().value);
  }
  return decoded.get(text);
}

// The middle of `bitmap`, all over a square canvas.
export function draw(canvas, bitmap) {
  const side = Math.min(bitmap.width, bitmap.height);
  const [left, top] = [(bitmap.width - side) / 2, (bitmap.height - side) / 2];
  const context = canvas.getContext("2d");
  context.fillStyle = "#ffffff"; // behind what is transparent
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.imageSmoothingQuality = "high";
  context.drawImage(bitmap, left, top, side, side, 0, 0, canvas.width, canvas.height);
}

// A picture made of a file that its owner chose: { text }, or { refusal } in words.
export async function pictureFrom(file) {
  if (file.size > FILE_SIZE_MAX) return { refusal: "This file is too large: choose another one." };
  let bitmap;
  try {
    bitmap = await createImageBitmap(file);
  } catch {
    return { refusal: "This is no picture that can be read here: choose a JPEG or PNG file." };
  }
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = SIDE_PX;
  draw(canvas, bitmap);
  bitmap.close();
  for (const quality of QUALITIES) {
    const text = canvas.toDataURL("image/jpeg", quality);
    if (text.length <= OWN_TEXT_MAX && pictureOf(text)) return { text };
  }
  return { refusal: "This picture has too much in it: choose another one." };
}
