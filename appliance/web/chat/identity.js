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

// The token's user name, or null when this is no token. For labels and storage keys only: nodes
// verify, we do not.
export function userOf(token) {
  try {
    const body = token.split(".")[1].replace(/-/g, "+").replace(/_/g, "/");
    const claims = JSON.parse(
      new TextDecoder().decode(Uint8Array.from(atob(body), (letter) => letter.charCodeAt(0))),
    );
    return typeof claims.sub === "string" ? claims.sub : null;
  } catch {
    return null;
  }
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
