// The server as this page knows it: the token, requests, the live stream that all tabs share, and all runs.

import {duration, elapsed} from './dom.js';

const TOKEN = 'deputy-token';
const LOCK = 'deputy-stream';
const SILENT_MS = 12000;
export const RETRY_MS = 250;
const tab = Math.random().toString(36).slice(2);

/** Take the token out of the address, if it is there: it is kept in this browser only, and never sent to another server. */
export function takeToken() {
  const found = /^#token=([\w-]+)$/.exec(location.hash);
  if (!found) return false;
  localStorage.setItem(TOKEN, found[1]);
  history.replaceState(null, '', location.pathname + location.search);
  return true;
}

export const hasToken = () => Boolean(localStorage.getItem(TOKEN));
export const setToken = (text) => localStorage.setItem(TOKEN, text);
export const dropToken = () => localStorage.removeItem(TOKEN);

/** An error of the server with its remedy, or that there is none. */
export class ApiError extends Error {
  constructor(status, content) {
    const {message, remedy} = content?.error ?? {message: 'The server does not answer.'};
    super(remedy ? `${message} ${remedy}` : message);
    this.status = status;
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
class Stream {
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
    // A person who looks at the page again waits for no pause.
    addEventListener('visibilitychange', () => { if (!document.hidden) this.wake?.(); });
  }

  /** Begin after a position; called once the board is known. */
  start(position) {
    this.position = position;
    if (this.started) return;
    this.started = true;
    this.watch(this.run);
    const lead = () => { this.isLeader = true; this.rewatch(); return this.read(); };
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
    this.position = frame.id;
    this.onframe(frame);
  }

  tell(state) {
    this.state = state;
    this.onstate(state);
    this.channel.postMessage({kind: 'state', state});
  }

  async read() {
    this.channel.postMessage({kind: 'leader'});
    let since = Date.now();
    this.tell('connecting');
    for (;;) {
      try {
        await this.readOnce(() => { since = Date.now(); });
        if (this.abort.signal.aborted && !this.isSilent) continue;
      } catch (error) {
        if (error instanceof ApiError && error.status === 401) { this.tell('token'); return; }
        if (error.name === 'AbortError' && !this.isSilent) continue;
      }
      this.tell('offline');
      // After a minute the server is not expected back at once.
      const pause = Date.now() - since < 60000 ? RETRY_MS : 8 * RETRY_MS;
      await new Promise((done) => { this.wake = done; setTimeout(done, pause * (0.75 + Math.random() / 2)); });
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
    const frame = {};
    for (const line of text.split('\n')) {
      const at = line.indexOf(': ');
      frame[line.slice(0, at)] = line.slice(at + 2);
    }
    frame.data = JSON.parse(frame.data);
    if (frame.event === 'beat') return;
    this.channel.postMessage({kind: 'frame', frame});
    this.take(frame);
  }
}

// --- runs --------------------------------------------------------------------------------------------------------------

const LIVE = new Set(['running', 'queued', 'waiting', 'interrupted']);

export const isLive = (row) => LIVE.has(row.status);
/** How long a run has worked. */
export const took = (row) => (row.ended_at ? elapsed(row.ended_at - row.began_at) : duration(store.now() - row.began_at));
export const nameOf = (row) => row?.label || row?.command || row?.agent || row?.id || '';

class Store extends EventTarget {
  constructor() {
    super();
    this.clear();
    this.state = 'connecting';
    this.skew = 0;
    this.asOf = 0;
    this.journal = {state: 'ok'};
    this.stream = new Stream((frame) => this.take(frame), (state) => this.connected(state));
    this.early = [];
  }

  clear() {
    this.rows = new Map();
    this.children = new Map();
    this.roots = [];
    this.waiting = new Map();
    this.doing = new Map();
    this.totals = new Map();
    this.structure = 0;
  }

  /** The time by the server's clock. */
  now() { return Date.now() / 1000 + this.skew; }

  /** Read the whole board, then follow it. */
  async load() {
    this.isLoaded = false;
    const board = await get('/api/board');
    this.clear();
    this.fields = board.fields;
    this.journal = board.journal;
    this.settle(board.now);
    for (const row of board.runs) this.upsert(row);
    for (const one of board.waiting) this.ask(one);
    for (const [run, doing] of Object.entries(board.doing)) this.doing.set(run, doing);
    this.isLoaded = true;
    // The board has all looks up to its own.
    const look = Number(board.cursor.split('.')[4]);
    const missed = this.early.filter((frame) => frame.look > look);
    this.early = [];
    this.stream.start(board.cursor);
    this.stream.position = board.cursor;
    for (const frame of missed) this.take(frame);
    this.changed('board');
  }

  settle(now) {
    this.skew = now - Date.now() / 1000;
    this.asOf = now;
  }

  /** Not live before all of the board is known. */
  connected(state) {
    this.streamed = state;
    this.state = state === 'live' && !this.isLoaded ? 'connecting' : state;
    this.changed('state');
  }

  /** Read the board until that succeeds: the server may end meanwhile, or runs may be removed once more. */
  async reload() {
    this.isLoaded = false;
    this.isOld = true;
    if (this.reloading) return;
    this.reloading = true;
    while (this.isOld) {
      this.isOld = false;
      await this.load().catch((error) => { this.isOld = error.status !== 401; return new Promise((done) => setTimeout(done, RETRY_MS)); });
    }
    this.reloading = false;
    this.connected(this.isLoaded ? this.streamed : 'token');
  }

  take(frame) {
    if (frame.event === 'reset') { this.reload(); return; }
    if (!this.isLoaded) { this.early.push(frame); return; }
    this.asOf = this.now();
    const data = frame.data;
    switch (frame.event) {
      case 'rows':
        this.settle(data.now);
        for (const row of data.rows) this.upsert(row);
        break;
      case 'doing':
        for (const [run, doing] of Object.entries(data)) this.doing.set(run, doing);
        break;
      case 'waiting':
        if (data.all) this.waiting.clear();
        for (const one of data.all ?? data.add) this.ask(one);
        for (const [run, key] of data.drop ?? []) this.waiting.delete(`${run} ${key}`);
        break;
      case 'gone':
        for (const run of data.runs) this.drop(run);
        break;
      case 'job':
      case 'text':
      case 'records':
        this.dispatchEvent(new CustomEvent(frame.event, {detail: data}));
        return;
    }
    this.changed(frame.event);
  }

  changed(what) { this.dispatchEvent(new CustomEvent('change', {detail: what})); }

  ask(one) { this.waiting.set(`${one.run} ${one.key}`, one); }

  upsert(values) {
    const row = {};
    for (let at = 0; at < this.fields.length; at++) row[this.fields[at]] = values[at];
    const before = this.rows.get(row.id);
    this.rows.set(row.id, row);
    if (!isLive(row)) this.doing.delete(row.id);
    this.isSummed = false;
    if (before?.status !== row.status || before.flags.length !== row.flags.length) this.structure++;
    if (before) return;
    if (row.parent === null) this.roots.push(row.id);
    else if (this.children.has(row.parent)) this.children.get(row.parent).push(row.id);
    else this.children.set(row.parent, [row.id]);
  }

  drop(run) {
    const row = this.rows.get(run);
    this.rows.delete(run);
    this.structure++;
    const list = row?.parent == null ? this.roots : this.children.get(row.parent);
    const at = list?.indexOf(run) ?? -1;
    if (at >= 0) list.splice(at, 1);
  }

  /** The top runs, in the order of their birth; a run whose caller is unknown is one of them. */
  tops() {
    const lost = [...this.rows.values()].filter((row) => row.parent !== null && !this.rows.has(row.parent));
    return lost.length ? [...this.roots, ...lost.map((row) => row.id)] : this.roots;
  }

  /** What a run and everything below it has used. */
  used(run) {
    if (!this.isSummed) this.sum();
    return this.totals.get(run) ?? {input: 0, output: 0, requests: 0, cost: 0, estimated: false};
  }

  sum() {
    this.totals.clear();
    for (const {id, input, output, requests, cost, estimated} of this.rows.values()) this.totals.set(id, {input, output, requests, cost, estimated});
    // Children were born after their callers, so that sums go up in one pass.
    for (const row of [...this.rows.values()].reverse()) {
      const above = row.parent === null ? null : this.totals.get(row.parent);
      if (!above) continue;
      const own = this.totals.get(row.id);
      above.input += own.input;
      above.output += own.output;
      above.requests += own.requests;
      above.estimated ||= own.estimated;
      above.cost = above.cost === null || own.cost === null ? null : above.cost + own.cost;
    }
    this.isSummed = true;
  }

  /** The figures of the header. */
  summary() {
    const found = {waiting: this.waiting.size, running: 0, flagged: 0, failed: 0, tokens: 0, cost: 0, unknown: 0, rate: 0, estimated: false};
    for (const row of this.rows.values()) {
      if (row.status === 'running') found.running++;
      if (row.flags.length) found.flagged++;
      if (row.status === 'failed') found.failed++;
      found.tokens += row.input + row.output;
      found.estimated ||= row.estimated;
      if (row.cost === null) found.unknown++; else found.cost += row.cost;
      found.rate += row.rate;
    }
    return found;
  }

  /** The questions, the one whose time ends first at the top. */
  questions() {
    const late = (one) => one.until ?? Infinity;
    return [...this.waiting.values()].sort((a, b) => late(a) - late(b) || a.since - b.since);
  }

  /** Whether something can be changed: the server answers, and the journal is not damaged. */
  get canAct() { return this.state === 'live' && this.journal.state !== 'damaged'; }

  /** The callers of a run, the top first. */
  path(run) {
    const path = [];
    for (let row = this.rows.get(run); row && row.parent !== null && path.length < 100; ) {
      row = this.rows.get(row.parent);
      if (row) path.unshift(row);
    }
    return path;
  }
}

export const store = new Store();
