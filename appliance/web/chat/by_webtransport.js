// A conversation over WebTransport: one stream, each frame behind its size; what may be lost goes
// in a datagram.
//
// The node is asked by TCP first: a browser takes the certificate that it shows by QUIC only for
// its digest.

const MAY_BE_LOST = new Set(["typing"]);
const SIZE_SIZE = 4; // bytes in front of a frame, little-endian
const FRAME_SIZE_MAX = 16 * 2 ** 20;

function bytesOf(hex) {
  return Uint8Array.from(hex.match(/../g), (byte) => Number.parseInt(byte, 16));
}

function framed(data) {
  const bytes = new Uint8Array(SIZE_SIZE + data.length);
  new DataView(bytes.buffer).setUint32(0, data.length, true);
  bytes.set(data, SIZE_SIZE);
  return bytes;
}

// Frames out of pieces of a stream.
export class Unframer {
  constructor() {
    this.pieces = [];
    this.size = 0; // of all of them
  }

  // The frames that are whole with this piece, as texts; throws where one is too large.
  take(piece) {
    this.pieces.push(piece);
    this.size += piece.length;
    const texts = [];
    while (this.size >= SIZE_SIZE) {
      const joined = this.joined();
      const size = new DataView(joined.buffer, joined.byteOffset).getUint32(0, true);
      if (size > FRAME_SIZE_MAX) throw new Error("a frame that is too large");
      const end = SIZE_SIZE + size;
      if (this.size < end) break;
      texts.push(new TextDecoder().decode(joined.subarray(SIZE_SIZE, end)));
      this.pieces = [joined.subarray(end)];
      this.size -= end;
    }
    return texts;
  }

  joined() {
    if (this.pieces.length > 1) {
      const whole = new Uint8Array(this.size);
      let at = 0;
      for (const piece of this.pieces) {
        whole.set(piece, at);
        at += piece.length;
      }
      this.pieces = [whole];
    }
    return this.pieces[0];
  }
}

export class ByWebTransport {
  static words = "WebTransport";
  static opensByAnswer = true;

  static couldReach(url) {
    return url.startsWith("wss:") && typeof WebTransport === "function";
  }

  constructor(url, { onOpen, onFrame, onEnd }) {
    this.asking = new AbortController();
    this.session = this.writer = this.whispers = null;
    this.onEnd = onEnd;
    this.open(new URL(url.replace(/^wss/, "https")), onOpen, onFrame).catch((error) =>
      this.end(error.message),
    );
  }

  async open(place, onOpen, onFrame) {
    const answer = await fetch(new URL("/v1/webtransport", place), {
      cache: "no-store",
      signal: this.asking.signal,
    });
    if (!answer.ok) throw new Error("the node speaks no QUIC");
    const { path, certificate_hashes: digests } = await answer.json();
    if (this.onEnd === null) return;
    const serverCertificateHashes = digests.map((digest) => ({
      algorithm: "sha-256",
      value: bytesOf(digest),
    }));
    const session = (this.session = new WebTransport(
      new URL(path, place).href,
      digests.length > 0 ? { serverCertificateHashes } : {},
    ));
    session.closed.then(
      ({ reason }) => this.end(reason),
      (error) => this.end(error.message),
    );
    await session.ready;
    const stream = await session.createBidirectionalStream();
    if (this.onEnd === null) return;
    this.writer = stream.writable.getWriter();
    const { datagrams } = session;
    this.whispers = (datagrams.createWritable?.() ?? datagrams.writable).getWriter();
    onOpen();
    await this.hear(stream.readable.getReader(), onFrame);
  }

  async hear(reader, onFrame) {
    const unframer = new Unframer();
    for (;;) {
      const { value, done } = await reader.read();
      if (done) break;
      for (const text of unframer.take(value)) {
        if (this.onEnd === null) return;
        onFrame(JSON.parse(text));
      }
    }
    const { reason } = await this.session.closed; // which follows, with the name of an error
    this.end(reason);
  }

  send(frame) {
    const data = new TextEncoder().encode(JSON.stringify(frame));
    const isWhisper = MAY_BE_LOST.has(frame.type);
    if (isWhisper && this.whispers.desiredSize <= 0) return; // many wait: this one is lost
    const writing = isWhisper ? this.whispers.write(data) : this.writer.write(framed(data));
    writing.catch(() => {}); // the session is over, which is told by itself
  }

  end(reason) {
    const { onEnd } = this;
    this.close();
    onEnd?.(reason || "connection closed");
  }

  close() {
    this.onEnd = null;
    this.asking.abort();
    try {
      this.session?.close();
    } catch {
      // it is over already
    }
  }
}
