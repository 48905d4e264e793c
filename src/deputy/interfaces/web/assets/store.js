// All runs as this page knows them: a snapshot of the board, changed by frames of the stream.

import {get, Stream} from './api.js';

const LIVE = new Set(['running', 'waiting', 'interrupted']);

export const isLive = (row) => LIVE.has(row.status);
export const nameOf = (row) => row?.label || row?.command || row?.agent || row?.id || '';

class Store extends EventTarget {
  constructor() {
    super();
    this.clear();
    this.state = 'connecting';
    this.skew = 0;
    this.asOf = 0;
    this.version = '';
    this.journal = {state: 'ok'};
    this.jobs = new Map();
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
    this.version = board.version;
    this.journal = board.journal;
    this.settle(board.now);
    for (const row of board.runs) this.upsert(row);
    for (const one of board.waiting) this.ask(one);
    for (const [run, doing] of Object.entries(board.doing)) this.doing.set(run, doing);
    for (const job of board.jobs) this.jobs.set(job.id, job);
    this.isLoaded = true;
    const [server, look] = board.cursor.split('.').slice(3);
    const missed = this.early.filter(({id}) => id && (id.split('.')[3] !== server || Number(id.split('.')[4]) > Number(look)));
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

  connected(state) {
    this.state = state;
    this.changed('state');
  }

  take(frame) {
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
        this.jobs.set(data.id, data);
        this.dispatchEvent(new CustomEvent('job', {detail: data}));
        break;
      case 'reset':
        this.load().catch(() => this.connected('offline'));
        return;
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
    if (before && before.status === row.status && before.flags.length === row.flags.length) { this.isSummed = false; return; }
    this.structure++;
    this.isSummed = false;
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
    for (const row of this.rows.values()) {
      this.totals.set(row.id, {input: row.input, output: row.output, requests: row.requests, cost: row.cost, estimated: row.estimated});
    }
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
    const found = {waiting: this.waiting.size, running: 0, flagged: 0, failed: 0, tokens: 0, cost: 0, unknown: 0, rate: 0};
    for (const row of this.rows.values()) {
      if (row.status === 'running') found.running++;
      if (row.flags.length) found.flagged++;
      if (row.status === 'failed') found.failed++;
      found.tokens += row.input + row.output;
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
