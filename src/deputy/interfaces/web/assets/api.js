// The token, requests, and the live stream, which all tabs share.

const TOKEN = 'deputy-token';
const LOCK = 'deputy-stream';
const SILENT_MS = 12000;
const tab = Math.random().toString(36).slice(2);

/** Take the token out of the address: it is kept in this browser only, and never sent to another server. */
export function takeToken() {
  const found = /^#token=([\w-]+)$/.exec(location.hash);
  if (!found) return;
  localStorage.setItem(TOKEN, found[1]);
  history.replaceState(null, '', location.pathname + location.search);
}

export const hasToken = () => Boolean(localStorage.getItem(TOKEN));
export const setToken = (text) => localStorage.setItem(TOKEN, text);
export const dropToken = () => localStorage.removeItem(TOKEN);

/** An error of the server, or that there is none. */
export class ApiError extends Error {
  constructor(status, content) {
    super(content?.error?.message ?? 'The server does not answer.');
    this.status = status;
    this.code = content?.error?.code ?? '';
    this.remedy = content?.error?.remedy ?? '';
    this.content = content;
  }
}

async function request(path, options = {}) {
  const headers = {Authorization: `Bearer ${localStorage.getItem(TOKEN) ?? ''}`, ...options.headers};
  let response;
  try {
    response = await fetch(path, {...options, headers, cache: 'no-store', credentials: 'omit'});
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new ApiError(0, null);
  }
  if (!response.ok) throw new ApiError(response.status, await response.json().catch(() => null));
  return response;
}

export const get = async (path) => (await request(path)).json();
export const blob = async (path) => (await request(path)).blob();
export const post = async (path, body) =>
  (await request(path, {method: 'POST', headers: {'Content-Type': 'application/json'}, body: JSON.stringify(body)})).json();

// --- the stream -----------------------------------------------------------------------------------------------------

/** Follows the journal: one tab reads the stream and passes it to the others. */
export class Stream {
  constructor(onframe, onstate) {
    this.onframe = onframe;
    this.onstate = onstate;
    this.position = '';
    this.wants = new Map();
    this.run = '';
    this.isLeader = false;
    this.channel = new BroadcastChannel(LOCK);
    this.channel.onmessage = ({data}) => this.heard(data);
    addEventListener('pagehide', () => this.channel.postMessage({kind: 'want', tab, run: ''}));
    addEventListener('online', () => this.abort?.abort());
  }

  /** Begin after a position; called once the board is known. */
  start(position) {
    this.position = position;
    if (this.started) return;
    this.started = true;
    this.watch(this.run);
    const lead = () => { this.isLeader = true; return this.read(); };
    if (navigator.locks) navigator.locks.request(LOCK, lead); else lead();
    setTimeout(() => { if (!this.isLeader) this.channel.postMessage({kind: 'hello', tab}); }, 50);
  }

  /** Also get the text and the records of a run; empty for none. */
  watch(run) {
    this.run = run;
    this.wants.set(tab, run);
    if (this.isLeader) this.rewatch(); else this.channel.postMessage({kind: 'want', tab, run});
  }

  rewatch() {
    const runs = [...new Set([...this.wants.values()].filter(Boolean))].sort().join(',');
    if (runs !== this.runs) { this.runs = runs; this.abort?.abort(); }
  }

  heard(message) {
    if (message.kind === 'frame' && !this.isLeader) this.take(message.frame);
    else if (message.kind === 'state' && !this.isLeader) this.onstate(message.state);
    else if (message.kind === 'want' && this.isLeader) { this.wants.set(message.tab, message.run); this.rewatch(); }
    else if (message.kind === 'hello' && this.isLeader) this.channel.postMessage({kind: 'state', state: this.state});
    else if (message.kind === 'leader') this.channel.postMessage({kind: 'want', tab, run: this.run});
  }

  take(frame) {
    if (frame.id) this.position = frame.id;
    this.onframe(frame);
  }

  tell(state) {
    this.state = state;
    this.onstate(state);
    this.channel.postMessage({kind: 'state', state});
  }

  async read() {
    this.channel.postMessage({kind: 'leader'});
    let pause = 250;
    this.tell('connecting');
    for (;;) {
      try {
        await this.readOnce(() => { pause = 250; });
        if (this.abort.signal.aborted && !this.isSilent) continue;
      } catch (error) {
        if (error instanceof ApiError && error.status === 401) { this.tell('token'); return; }
        if (error.name === 'AbortError' && !this.isSilent) continue;
      }
      this.tell('offline');
      await new Promise((done) => setTimeout(done, pause * (0.75 + Math.random() / 2)));
      pause = Math.min(pause * 2, 5000);
    }
  }

  async readOnce(alive) {
    this.abort = new AbortController();
    this.isSilent = false;
    let timer;
    const waiting = () => {
      clearTimeout(timer);
      timer = setTimeout(() => { this.isSilent = true; this.abort.abort(); }, SILENT_MS);
    };
    waiting();
    try {
      const path = `/api/follow?after=${encodeURIComponent(this.position)}&run=${encodeURIComponent(this.runs ?? '')}`;
      const response = await request(path, {signal: this.abort.signal});
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = '';
      for (;;) {
        const {value, done} = await reader.read();
        if (done) return;
        waiting();
        alive();
        if (this.state !== 'live') this.tell('live');
        const parts = (rest + value).split('\n\n');
        rest = parts.pop();
        for (const part of parts) this.got(part);
      }
    } finally {
      clearTimeout(timer);
    }
  }

  got(text) {
    const frame = {event: '', id: '', data: null};
    for (const line of text.split('\n')) {
      const at = line.indexOf(': ');
      const name = line.slice(0, at);
      if (name === 'data') frame.data = JSON.parse(line.slice(at + 2));
      else if (name === 'event' || name === 'id') frame[name] = line.slice(at + 2);
    }
    if (frame.event === 'beat') return;
    this.channel.postMessage({kind: 'frame', frame});
    this.take(frame);
  }
}
