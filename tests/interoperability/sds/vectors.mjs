// Bytes made and read by the other implementation: one JSON object on standard input, one on output.
import { pathToFileURL } from "node:url";

const [modules] = process.argv.slice(2);
const base = pathToFileURL(`${modules}/node_modules/`).href;
const sds = await import(`${base}@waku/sds/dist/index.js`);
const bloom = await import(`${base}@waku/sds/dist/bloom_filter/bloom.js`);
let text = "";
for await (const part of process.stdin) text += part;
const asked = JSON.parse(text);

const bytes = (hex) => (hex === null ? undefined : new Uint8Array(Buffer.from(hex, "hex")));
const hex = (data) => (data === undefined ? null : Buffer.from(data).toString("hex"));
const entry = (e) => ({
  messageId: e.id, retrievalHint: bytes(e.hint), senderId: e.sender ?? undefined,
});
const plain = (e) => ({ id: e.messageId, hint: hex(e.retrievalHint), sender: e.senderId ?? null });

function encode(m) {
  const lamport = m.lamport === null ? undefined : BigInt(m.lamport);
  return hex(new sds.Message(m.id, m.channel, m.sender, m.history.map(entry), lamport,
    bytes(m.filter), bytes(m.content), m.requests.map(entry)).encode());
}
function decode(data) {
  const m = sds.Message.decode(bytes(data));
  return {
    id: m.messageId, channel: m.channelId, sender: m.senderId,
    lamport: m.lamportTimestamp === undefined ? null : Number(m.lamportTimestamp),
    history: m.causalHistory.map(plain), requests: (m.repairRequest ?? []).map(plain),
    filter: hex(m.bloomFilter), content: hex(m.content),
  };
}
function filter({ capacity, rate, ids, data }) {
  const options = { capacity, errorRate: rate };
  const made = data === undefined
    ? new bloom.DefaultBloomFilter(options) : bloom.DefaultBloomFilter.fromBytes(bytes(data), options);
  if (data !== undefined) return ids.map((id) => made.lookup(id));
  ids.forEach((id) => made.insert(id));
  return hex(made.toBytes());
}

console.log(JSON.stringify({
  encoded: asked.encode.map(encode),
  decoded: asked.decode.map(decode),
  filters: asked.filters.map(filter),
}));
