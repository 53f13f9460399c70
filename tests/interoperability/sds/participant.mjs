// The other implementation as a participant: the framing of `tigerchat federation participant` on
// standard input and output. Its library leaves all timers to its user; here they are scaled down.
//   node participant.mjs FOLDER_OF_MODULES '{"name": ..., "channel": ..., "seed": ..., times in ms}'
import { pathToFileURL } from "node:url";

const [modules, options] = process.argv.slice(2);
const settings = JSON.parse(options);
const base = pathToFileURL(`${modules}/node_modules/`).href;
const sds = await import(`${base}@waku/sds/dist/index.js`);
const MESSAGE = 1, COMMAND = 2, ANSWER = 3;

function write(kind, body) {
  const head = Buffer.alloc(5);
  head.writeUInt32BE(body.length + 1);
  head[4] = kind;
  process.stdout.write(Buffer.concat([head, body]));
}
const answer = (value) => write(ANSWER, Buffer.from(JSON.stringify(value)));
const hex = (bytes) => Buffer.from(bytes).toString("base64");

const channel = new sds.MessageChannel(settings.channel, settings.name, {
  causalHistorySize: settings.causalHistorySize,
  repairConfig: { tMin: settings.repairMin, tMax: settings.repairMax },
});
let errors = 0;
for (const name of ["taskError", sds.MessageChannelEvent.ErrorTask]) {
  channel.addEventListener(name, (event) => {
    errors += 1;
    answer({ event: "error", error: String(event.detail?.error) });
  });
}
channel.addEventListener(sds.MessageChannelEvent.InMessageMissing, (event) => {
  if (event.detail.length) answer({ event: "missing", ids: event.detail.map((e) => e.messageId) });
});

const broadcast = async (message) => {
  write(MESSAGE, Buffer.from(message.encode()));
  return { success: true };
};
const due = new Map(); // id -> when its next attempt is

async function work() {
  await channel.processTasks();
}
async function onTick() {
  channel.sweepIncomingBuffer();
  const { unacknowledged, possiblyAcknowledged } = channel.sweepOutgoingBuffer();
  const now = Date.now();
  for (const message of [...unacknowledged, ...possiblyAcknowledged]) {
    const at = due.get(message.messageId) ?? now + settings.resend;
    if (at <= now) write(MESSAGE, Buffer.from(message.encode()));
    due.set(message.messageId, at <= now ? now + settings.resend : at);
  }
  await channel.sweepRepairIncomingBuffer(broadcast);
}

const commands = {
  send: async ({ text }) => {
    channel.pushOutgoingMessage(new TextEncoder().encode(text), broadcast);
    await work();
    return {};
  },
  log: async () => ({
    entries: channel.localHistory.slice(0).map((entry) => ({
      lamport: Number(entry.lamportTimestamp),
      message_id: entry.messageId,
      content: hex(entry.content),
    })),
  }),
  stats: async () => ({
    stats: {
      errors,
      outgoing: channel.outgoingBuffer.length,
      waiting: channel.incomingBuffer.length,
    },
  }),
  quit: async () => {
    setTimeout(() => process.exit(0), 20);
    return {};
  },
};

let queue = Promise.resolve();
async function onFrame(kind, body) {
  if (kind === MESSAGE) {
    const message = sds.Message.decode(body);
    if (message === undefined) {
      errors += 1;
      answer({ event: "error", error: "not decoded" });
      return;
    }
    channel.pushIncomingMessage(message, undefined);
    await work();
  } else if (kind === COMMAND) {
    const command = JSON.parse(body.toString());
    const result = await commands[command.command](command);
    answer({ reply: command.command, id: command.id, ...result });
  }
}

let buffer = Buffer.alloc(0);
process.stdin.on("data", (data) => {
  buffer = Buffer.concat([buffer, data]);
  while (buffer.length >= 4) {
    const size = buffer.readUInt32BE(0);
    if (buffer.length < 4 + size) break;
    const kind = buffer[4];
    const body = Buffer.from(buffer.subarray(5, 4 + size));
    buffer = buffer.subarray(4 + size);
    queue = queue.then(() => onFrame(kind, body));
  }
});
process.stdin.on("end", () => process.exit(0));
setInterval(() => { queue = queue.then(onTick); }, settings.tick);
setInterval(() => {
  queue = queue.then(() => channel.pushOutgoingSyncMessage(async (message) => {
    await broadcast(message);
    return true;
  }));
}, settings.sync);
