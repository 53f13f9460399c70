// Who we are: the user's token, and this tab's device number (client_id) for that user.
//
// A device numbers its records 1, 2, 3 ... in each room; two tabs must therefore never share a
// client_id. It lives in sessionStorage, which a browser copies when a tab is duplicated: a lock
// held for the life of the page tells the original from the copy, and the copy takes a new
// client_id.

const TOKEN_KEY = "tigerchat.token";

function hex(bytes) {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

function uuidText(bytes) {
  const digits = hex(bytes);
  return [
    digits.slice(0, 8),
    digits.slice(8, 12),
    digits.slice(12, 16),
    digits.slice(16, 20),
    digits.slice(20),
  ].join("-");
}

// Random UUID, version 4: a device.
export function uuidRandom() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = (bytes[6] & 0x0f) | 0x40;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  return uuidText(bytes);
}

// UUID version 7, ordered by time: a message.
export function uuidOrdered(nowMs = Date.now()) {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  for (let i = 0; i < 6; i += 1) bytes[i] = Math.floor(nowMs / 2 ** (8 * (5 - i))) % 256;
  bytes[6] = (bytes[6] & 0x0f) | 0x70;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  return uuidText(bytes);
}

// What a token claims, or {} when this is no token. For labels, storage keys and which controls are
// shown: nodes verify, we do not.
function claimsOf(token) {
  try {
    const body = token.split(".")[1].replace(/-/g, "+").replace(/_/g, "/");
    const text = Uint8Array.from(atob(body), (letter) => letter.charCodeAt(0));
    return JSON.parse(new TextDecoder().decode(text)) ?? {};
  } catch {
    return {};
  }
}

// The token's user name, or null when this is no token.
export function userOf(token) {
  const { sub } = claimsOf(token);
  return typeof sub === "string" ? sub : null;
}

// Whether `pattern`, in which * stands for any text, is of `name`. Plain comparisons: an expression
// made of a pattern with many stars could take for ever.
function matches(pattern, name) {
  const parts = pattern.split("*");
  const last = parts.pop();
  if (parts.length === 0) return last === name;
  if (!name.startsWith(parts[0])) return false;
  let at = 0;
  for (const part of parts) {
    const found = name.indexOf(part, at);
    if (found === -1) return false;
    at = found + part.length;
  }
  return name.length - at >= last.length && name.endsWith(last);
}

// Whether the token claims the right to change a room's topic and pins.
export function mayModerate(token, room) {
  return Object.entries(claimsOf(token).rights ?? {}).some(
    ([pattern, rights]) =>
      (rights.includes("moderate") || rights.includes("admin")) && matches(pattern, room),
  );
}

// The token from the address bar (removed from it at once) or of this tab; null when there is none.
export function tokenFound() {
  const fragment = new URLSearchParams(location.hash.slice(1));
  const token = fragment.get("token");
  if (token !== null) {
    fragment.delete("token");
    const rest = fragment.toString();
    history.replaceState(null, "", location.pathname + location.search + (rest ? `#${rest}` : ""));
    tokenKeep(token);
  }
  return sessionStorage.getItem(TOKEN_KEY);
}

export function tokenKeep(token) {
  sessionStorage.setItem(TOKEN_KEY, token.trim());
}

export function tokenForget() {
  sessionStorage.removeItem(TOKEN_KEY);
}

// True if this page now owns `clientId` for as long as it lives; false if another page already
// does.
export function claimDevice(clientId) {
  if (!navigator.locks) return Promise.resolve(true);
  return new Promise((resolve) => {
    navigator.locks.request(`tigerchat.device.${clientId}`, { ifAvailable: true }, (lock) => {
      resolve(lock !== null);
      return lock === null ? undefined : new Promise(() => {});
    });
  });
}
