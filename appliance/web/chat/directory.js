// The farm's directory: which nodes serve, and with which weight. A node hands it out, so nothing
// of it is believed but what the site's key vouches for:
//
//   site's key --signs--> delegation: keys that may sign --one of them signs--> content
//
// Without cryptography (a page over plain HTTP has none) there is no directory: the list of nodes
// that came with the page must do.

const KEY_STORED = "tigerchat.farmKey"; // the first one seen of this site stays

const CONTEXT_DELEGATION = "tigerchat v1 delegation";
const CONTEXT_DIRECTORY = "tigerchat v1 directory";
const CLUSTER = "farm";

// The one form of a value in JSON, as it was signed: keys sorted, no spaces.
export function canonical(value) {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  const rows = Object.keys(value).sort();
  return `{${rows.map((key) => `${JSON.stringify(key)}:${canonical(value[key])}`).join(",")}}`;
}

function bytesOf(hex) {
  if (!/^([0-9a-f]{2})+$/.test(hex)) throw new Error("no hexadecimal digits");
  return Uint8Array.from(hex.match(/../g), (byte) => Number.parseInt(byte, 16));
}

async function fits(key, context, value, signature) {
  const algorithm = { name: "Ed25519" };
  const imported = await crypto.subtle.importKey("raw", bytesOf(key), algorithm, false, ["verify"]);
  const signed = new TextEncoder().encode(context + canonical(value));
  return crypto.subtle.verify(algorithm, imported, bytesOf(signature), signed);
}

// The key that vouches for this site's directories: the first one that it named. Another one later
// is not taken; "" when there is none.
export function farmKey(named) {
  const stored = localStorage.getItem(KEY_STORED);
  if (stored === null && named) localStorage.setItem(KEY_STORED, named);
  return stored ?? named ?? "";
}

export class Directory {
  constructor(key) {
    this.key = key;
    this.content = null;
    this.refused = ""; // why the newest one was not taken, in a word
  }

  get usable() {
    return this.key !== "" && globalThis.crypto?.subtle !== undefined;
  }

  // Whether `signed` is newer than what is known. One that does not fit changes nothing.
  async take(signed) {
    if (!this.usable || signed === "") return false;
    const { why, content } = await this.validate(signed);
    this.refused = why;
    if (why !== "" || content.version === this.content?.version) return false;
    this.content = content;
    return true;
  }

  async validate(signed) {
    try {
      const whole = JSON.parse(signed);
      const { content, delegation, signature } = whole;
      const { cluster, keys } = delegation;
      if (canonical(whole) !== signed || !Number.isSafeInteger(content.version))
        return { why: "malformed" };
      if (cluster !== CLUSTER || content.cluster !== CLUSTER) return { why: "cluster" };
      const vouched = { cluster, keys };
      if (!(await fits(this.key, CONTEXT_DELEGATION, vouched, delegation.signature)))
        return { why: "delegation" };
      const signer = keys[String(content.publisher)];
      if (!(await fits(signer, CONTEXT_DIRECTORY, content, signature))) return { why: "signature" };
      if (content.version < (this.content?.version ?? 0)) return { why: "version" };
      return { why: "", content };
    } catch {
      return { why: "malformed" };
    }
  }

  // Addresses in the order in which to try them: `current` first, then by chance and weight, then
  // those of `known` that the directory does not list. Who has left is passed over; once the
  // directory has expired it comes last, as it may be back.
  order(current, known) {
    if (this.content === null) return known;
    const rates = new Map();
    for (const { address, weight } of this.content.endpoints)
      if (address !== "") rates.set(address, weight);
    // Each waits for a time drawn at a rate of its weight: the order in which they come.
    const drawn = [...rates].map(([url, rate]) => [-Math.log(1 - Math.random()) / rate, url]);
    const listed = drawn.sort(([a], [b]) => a - b).map(([, url]) => url);
    const left = new Set((this.content.left ?? []).flatMap((row) => row.addresses));
    const unlisted = known.filter((url) => !rates.has(url));
    const others = unlisted.filter((url) => !left.has(url));
    if (Date.now() > this.content.expires) others.push(...unlisted.filter((url) => left.has(url)));
    return [current, ...[...listed, ...others].filter((url) => url !== current)];
  }
}
