// A conversation over a WebSocket. What each way is and does: ways.js.

const SUBPROTOCOL = "tigerchat.v1.json";

export class ByWebSocket {
  static words = "WebSocket";
  static opensByAnswer = true;

  static couldReach() {
    return true;
  }

  constructor(url, { onOpen, onFrame, onEnd }) {
    const socket = (this.socket = new WebSocket(url, SUBPROTOCOL));
    socket.onopen = onOpen;
    socket.onmessage = (event) => onFrame(JSON.parse(event.data));
    socket.onclose = (event) => onEnd(event.reason || "connection closed");
  }

  send(frame) {
    this.socket.send(JSON.stringify(frame));
  }

  close() {
    const { socket } = this;
    socket.onopen = socket.onmessage = socket.onclose = null;
    socket.close();
  }
}
