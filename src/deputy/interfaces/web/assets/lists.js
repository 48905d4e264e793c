// Long lists of which only the rows near the screen are in the document: runs, and the records of one run.

import {unread} from './actions.js';
import {clock, FIXED, h, markdown, put, setText} from './dom.js';
import {get, store} from './store.js';

const MARGIN = 6;

/** A list that is drawn again, before the next frame, when the window scrolls or changes its size. */
class DrawnList {
  constructor() {
    this.shown = new Map();
    this.listening = new AbortController();
    for (const name of ['scroll', 'resize']) addEventListener(name, () => { this.noticeScroll?.(); this.soon(); }, {passive: true, signal: this.listening.signal});
  }

  dispose() { this.listening.abort(); }

  soon() {
    if (this.isPlanned) return;
    this.isPlanned = true;
    requestAnimationFrame(() => { this.isPlanned = false; if (!this.listening.signal.aborted) this.draw(); });
  }

  /** Put a row where it belongs. */
  place(row, y) {
    const place = `translateY(${y}px)`;
    if (row.element.style.transform !== place) row.element.style.transform = place;
  }

  /** Remove the rows that are far from the screen. */
  keep(kept) {
    for (const [key, row] of this.shown) if (!kept.has(key)) { row.element.remove(); this.shown.delete(key); }
  }
}

/** Rows of one height: `make(item)` returns {element, update(item)}, `keyOf(item)` names it. */
export class VirtualList extends DrawnList {
  constructor(element, {height, make, keyOf}) {
    super();
    this.element = element;
    this.height = height;
    this.make = make;
    this.keyOf = keyOf;
    this.items = [];
    element.classList.add('virtual');
  }

  /** Show other items. */
  set(items) {
    // The first row on the screen stays where it is when rows above it come or go.
    const height = this.height();
    const first = Math.floor((FIXED - this.element.getBoundingClientRect().top) / height);
    const key = this.items[first] && this.keyOf(this.items[first]);
    const at = key ? items.findIndex((one) => this.keyOf(one) === key) : -1;
    this.items = items;
    this.soon();
    if (at < 0 || at === first) return;
    this.draw();
    scrollBy(0, (at - first) * height);
  }

  draw() {
    const height = this.height();
    const top = -this.element.getBoundingClientRect().top;
    const first = Math.max(0, Math.floor(top / height) - MARGIN);
    const last = Math.min(this.items.length, Math.ceil((top + innerHeight) / height) + MARGIN);
    const total = `${this.items.length * height}px`;
    if (this.element.style.height !== total) this.element.style.height = total;
    const kept = new Set();
    for (let at = first; at < last; at++) {
      const item = this.items[at];
      const key = this.keyOf(item);
      kept.add(key);
      let row = this.shown.get(key);
      if (!row) {
        row = this.make(item);
        this.shown.set(key, row);
        this.element.append(row.element);
      }
      row.update(item, at);
      this.place(row, at * height);
    }
    this.keep(kept);
  }

  /** Scroll until an item can be seen. */
  reveal(at, room = 110) {
    const height = this.height();
    const top = this.element.getBoundingClientRect().top + at * height;
    if (top < room) scrollBy(0, top - room);
    else if (top + height > innerHeight - 60) scrollBy(0, top + height - innerHeight + 60);
    this.draw();
  }
}

// --- records -----------------------------------------------------------------------------------------------------------

const PAGE = 200;
const HEIGHT = 30;
const NAMES = {
  run_opened: 'opened', requested: 'asked', message_added: 'message', model_call_begun: 'model begins', model_call_ended: 'model',
  tool_call_begun: 'tool begins', tool_call_ended: 'tool', question_asked: 'asks', question_answered: 'answered', noted: 'note',
};

export class RecordList extends DrawnList {
  /** `seq` is the number of the last record; `isRaw` opens records as JSON. */
  constructor(run, seq, {isRaw, target}) {
    super();
    this.run = run;
    this.total = seq;
    this.isRaw = isRaw;
    this.heads = new Map();
    this.pages = new Map();
    this.bodies = new Map();
    this.open = new Map();
    this.fetches = 0;
    this.list = h('div.records.virtual', {role: 'list', tabindex: '-1', 'aria-label': 'Records'});
    this.live = h('pre.writing', {hidden: true, 'aria-label': 'What the model writes now'});
    this.more = h('button.news.below', {hidden: true, onclick: () => this.follow()});
    this.element = h('div', this.list, this.live, this.more);
    this.known = seq;
    this.target = target;
    this.at = target || seq;
  }

  /** Called once the list is in the document. */
  placed() {
    this.layout();
    if (this.target) { this.jump(this.target); if (!this.open.size) this.toggle(this.target); }
    else this.isFollowing = this.isAtEnd;
  }

  // --- where things are ---------------------------------------------------------------------------------------------

  /** The y of a record: lines of one height, and the open ones above it. */
  top(seq) {
    let y = (seq - 1) * HEIGHT;
    for (const [opened, {height}] of this.open) if (opened < seq) y += height;
    return y;
  }

  /** The record at a y. */
  seqAt(y) {
    let rest = y;
    let extra = 0;
    for (const [opened, {height}] of [...this.open].sort((a, b) => a[0] - b[0])) {
      const begin = opened * HEIGHT + extra;
      if (rest < begin) break;
      extra += Math.min(height, rest - begin);
    }
    return Math.max(1, Math.min(this.total, Math.floor((rest - extra) / HEIGHT) + 1));
  }

  layout() {
    this.list.style.height = `${this.top(this.total + 1)}px`;
    this.soon();
  }

  draw() {
    const above = -this.list.getBoundingClientRect().top;
    const first = Math.max(1, this.seqAt(Math.max(0, above)) - MARGIN);
    const last = Math.min(this.total, this.seqAt(Math.max(0, above + innerHeight)) + MARGIN);
    // The focus stays in the list when its row leaves the screen.
    if ((this.at < first || this.at > last) && this.shown.get(this.at)?.element.contains(document.activeElement)) this.list.focus({preventScroll: true});
    const kept = new Set();
    for (let seq = first; seq <= last; seq++) {
      kept.add(seq);
      let row = this.shown.get(seq);
      if (!row) {
        // Rows that are far from the screen now are used again.
        const old = this.shown.keys().next().value;
        row = old < first || old > last ? this.shown.get(old) : this.make();
        if (row.seq) this.shown.delete(old);
        row.bind(seq);
        this.shown.set(seq, row);
      }
      row.update();
      this.place(row, this.top(seq));
    }
    this.keep(kept);
    clearTimeout(this.reading);
    const missing = [Math.floor((first - 1) / PAGE), Math.floor((last - 1) / PAGE)].filter((page) => !this.pages.has(page));
    // A fast scroll passes pages that are never read.
    if (missing.length && this.total) this.reading = setTimeout(() => new Set(missing).forEach((page) => this.read(page)), this.fetches ? 60 : 0);
  }

  async read(page) {
    if (this.pages.has(page)) return;
    this.pages.set(page, true);
    this.fetches++;
    try {
      const {heads} = await get(`/api/runs/${this.run}/records?after=${page * PAGE}&limit=${PAGE}`);
      for (const head of heads) this.heads.set(head[0], head);
    } catch { this.pages.delete(page); }
    this.soon();
  }

  // --- one record ---------------------------------------------------------------------------------------------------

  make() {
    const number = h('a.seq', {title: 'Link to this record'});
    const time = h('span.quiet.at-time');
    const kind = h('span.kind');
    const line = h('span.text');
    const button = h('button.head', {'aria-expanded': 'false', onclick: () => this.toggle(row.seq)}, time, kind, line);
    const element = h('div.record', {role: 'listitem'}, number, button);
    let known = null;
    this.list.append(element);
    const bind = (seq) => {
      row.seq = seq;
      known = null;
      element.id = `record-${seq}`;
      number.href = `${location.pathname}#${seq}`;
      setText(number, seq);
      element.querySelector('.body')?.remove();
    };
    const row = {element, bind, update: () => {
      const {seq} = row;
      const head = this.heads.get(seq);
      element.classList.toggle('at', seq === this.at);
      button.setAttribute('aria-expanded', this.open.has(seq));
      const opened = this.open.get(seq);
      if (opened && opened.body.parentNode !== element) element.append(opened.body);
      if (!head || known === head) { if (!head) for (const part of [time, kind, line]) setText(part, ''); return; }
      known = head;
      setText(time, clock(head[1]).slice(-8));
      setText(kind, NAMES[head[2]] ?? head[2].replaceAll('_', ' '));
      element.dataset.kind = head[2];
      setText(line, head[4]);
    }};
    return row;
  }

  async toggle(seq) {
    this.at = seq;
    if (this.open.has(seq)) {
      this.open.get(seq).body.remove();
      this.open.delete(seq);
      this.layout();
      return;
    }
    const body = h('div.body', h('p.quiet', 'Reading…'));
    this.open.set(seq, {height: 40, body});
    // The address is now a link to this record.
    history.replaceState(null, '', `#${seq}`);
    this.layout();
    const page = !this.bodies.has(seq) && await get(`/api/runs/${this.run}/records?after=${seq - 1}&limit=1&bodies=1`).catch(unread(body));
    if (page === undefined) return;
    if (page) this.bodies.set(seq, page.heads[0]?.[5]);
    const content = this.bodies.get(seq);
    put(body, this.isRaw || !content ? h('pre', JSON.stringify(content, null, 2)) : readable(content));
    requestAnimationFrame(() => this.measure(seq));
  }

  measure(seq) {
    const opened = this.open.get(seq);
    if (!opened) return;
    const height = opened.body.offsetHeight;
    if (height) opened.height = height;
    this.layout();
    // What was opened low on the screen moves up, but not out of it.
    const {top, bottom} = opened.body.getBoundingClientRect();
    scrollBy(0, Math.max(0, Math.min(bottom - innerHeight + 20, top - 170)));
  }

  // --- what is new --------------------------------------------------------------------------------------------------

  /** More records exist. */
  grow(seq) {
    if (seq <= this.total) return;
    for (let page = Math.floor((this.total - 1) / PAGE); page <= Math.floor((seq - 1) / PAGE); page++) this.pages.delete(page);
    this.total = seq;
    this.layout();
    this.settle();
  }

  records(heads) {
    for (const head of heads) this.heads.set(head[0], head);
    const last = heads.at(-1)?.[0] ?? 0;
    if (heads.some((head) => head[2] === 'model_call_ended')) this.write('', true);
    this.grow(last);
    this.soon();
  }

  write(piece, isNew = false) {
    if (isNew) this.live.textContent = '';
    this.live.append(piece.replace(/\r/g, ''));
    if (this.live.textContent.length > 100000) this.live.textContent = this.live.textContent.slice(-50000);
    this.live.hidden = !this.live.textContent;
    this.settle();
  }

  get isAtEnd() { return this.element.getBoundingClientRect().bottom <= innerHeight + 40; }

  noticeScroll() {
    if (Date.now() < (this.movedAt ?? 0) + 200) return;
    this.isFollowing = this.isAtEnd;
    this.settle();
  }

  settle() {
    if (this.isFollowing) {
      this.known = this.total;
      this.more.hidden = true;
      if (store.rows.get(this.run)?.status === 'running' && !this.isAtEnd) this.toEnd();
      return;
    }
    const fresh = this.total - this.known;
    this.more.hidden = fresh <= 0;
    if (fresh > 0) setText(this.more, `↓ ${fresh} new`);
  }

  toEnd() {
    this.movedAt = Date.now();
    scrollTo(0, document.documentElement.scrollHeight);
  }

  follow() {
    this.isFollowing = true;
    this.toEnd();
    this.settle();
    this.soon();
  }

  jump(seq) {
    this.isFollowing = false;
    this.at = seq;
    const y = this.list.getBoundingClientRect().top + scrollY + this.top(seq);
    scrollTo(0, Math.max(0, y - innerHeight / 3));
    this.draw();
  }

  move(by) {
    // The first key shows which row is current; from a row that is not on the screen it goes to one that is.
    const above = -this.list.getBoundingClientRect().top;
    const seen = (y) => this.seqAt(above + y);
    let at = this.list.contains(document.activeElement) ? this.at + by : this.at;
    if (this.at < seen(FIXED) || this.at > seen(innerHeight)) at = seen(by > 0 ? 140 : innerHeight - 60);
    this.at = Math.max(1, Math.min(this.total, at));
    const y = this.list.getBoundingClientRect().top + this.top(this.at);
    if (y < 140) scrollBy(0, y - 140); else if (y > innerHeight - 60) scrollBy(0, y - innerHeight + 60);
    this.draw();
    this.shown.get(this.at)?.element.querySelector('button').focus({preventScroll: true});
  }
}

// --- a record in full -----------------------------------------------------------------------------------------------

function readable(event) {
  const parts = [];
  const text = (value) => { if (value) parts.push(markdown(value)); };
  const code = (name, value) => {
    if (value === undefined || value === null || value === '') return;
    parts.push(h('div', h('h4', name), h('pre', typeof value === 'string' ? value : JSON.stringify(value, null, 2))));
  };
  text(event.prompt ?? event.request?.prompt ?? event.content);
  if (event.message) said(event.message, text, code);
  if (event.tool && event.arguments) for (const [name, value] of Object.entries(event.arguments)) code(name, value);
  if (event.question) text(event.question);
  if (event.body !== undefined) code('answer', event.body);
  if (event.outcome) { text(event.outcome.summary); text(event.outcome.report); }
  if (event.error) code('error', event.error.message);
  if (event.trace) code('stack trace', event.trace);
  if (event.result !== undefined) code('result', event.result);
  if (event.reason) text(event.reason);
  if (!parts.length) parts.push(h('pre', JSON.stringify(event, null, 2)));
  return parts;
}

function said(message, text, code) {
  if (typeof message === 'string') { text(message); return; }
  const content = message.content ?? message.parts ?? message.text;
  for (const part of Array.isArray(content) ? content : [content]) {
    if (typeof part === 'string') text(part);
    else if (part?.text) text(part.text);
    else if (part?.name) code(`→ ${part.name}`, part.arguments ?? part.input);
    else if (part?.content) said(part, text, code);
  }
  for (const call of message.tool_calls ?? []) code(`→ ${call.name}`, call.arguments ?? call.input);
  for (const result of message.results ?? []) code('result', typeof result.content === 'string' ? result.content : JSON.stringify(result.content));
}
