// The timeline of a tree, one lane for each run, as SVG; and cost and tokens by model, agent and day.

import {clock, count, counted, elapsed, h, MARKS, money, put, setText} from './dom.js';
import {announce, unread} from './actions.js';
import {VirtualList} from './lists.js';
import {get, nameOf, store} from './store.js';

const LANE = 26;
const FOLD_PART = 0.1;
const FOLDED = 0.015;

export class TimelineView {
  constructor(go, root) {
    this.go = go;
    this.root = root;
    this.title = 'Timeline';
    this.zoom = null;
    this.at = 0;
    this.call = null;
    this.axis = h('div.time-axis', {'aria-hidden': 'true'});
    this.lanes = h('div.lanes', {role: 'list', 'aria-label': 'Lanes'});
    this.note = h('div.quiet');
    this.said = h('p.said');
    this.reset = h('button', {hidden: true, onclick: () => this.setZoom(null)}, 'Whole time');
    this.element = h('div.timeline-page',
      h('nav.crumbs', {'aria-label': 'Callers'}, h('a', {href: '/'}, 'Board'), ' › ', h('a', {href: `/run/${root}`}, nameOf(store.rows.get(root)) || root)),
      h('div.run-title', h('h1', 'Timeline'), h('p.legend', ['model', 'tool', 'waiting', 'retry', 'failed'].map((name) => [h(`span.key.span-${name}`), name, ' '])), this.reset),
      this.note, this.said, this.axis, this.lanes);
    // A tooltip needs a mouse and patience: what is under the pointer, or current, is said above the lanes.
    this.lanes.addEventListener('pointerover', ({target}) => target.said && setText(this.said, target.said));
    this.list = new VirtualList(this.lanes, {height: () => LANE, make: (lane) => this.make(lane), keyOf: (lane) => lane.run});
    this.brush();
    this.load();
    this.timer = setInterval(() => this.tick(), 2000);
  }

  dispose() {
    clearInterval(this.timer);
    this.list.dispose();
    removeEventListener('resize', this.onresize);
    removeEventListener('pointermove', this.onmove);
    removeEventListener('pointerup', this.onup);
  }

  async load() {
    const data = await get(`/api/tree/${this.root}`).catch(unread(this.note));
    if (!data) return;
    this.data = data;
    this.arrange();
  }

  update(what) {
    if (what === 'rows' || what === 'board') this.isStale = true;
  }

  tick() {
    if (!this.isStale || document.hidden) return;
    this.isStale = false;
    this.load();
  }

  /** Find the times in which the whole tree did nothing but wait, and fold those above a tenth of it. */
  arrange() {
    const now = store.now();
    const spans = this.data.lanes.flatMap((lane) => lane.spans.map(([kind, from, to]) => [from, to ?? now, kind])).sort((a, b) => a[0] - b[0]);
    if (!spans.length) { setText(this.note, 'Nothing has happened yet.'); return; }
    this.from = spans[0][0];
    this.to = spans.reduce((most, [, to]) => Math.max(most, to), this.from + 0.001);
    const gaps = [];
    let end = this.from;
    for (const [from, to] of [...spans.filter(([, , kind]) => kind !== 'waiting'), [this.to, this.to]]) {
      if (from - end > (this.to - this.from) * FOLD_PART) gaps.push([end, from]);
      end = Math.max(end, to);
    }
    this.gaps = gaps;
    const folded = gaps.length ? `, ${counted(gaps.length, 'idle time')} folded` : '';
    setText(this.note, `${counted(this.data.lanes.length, 'run')}, ${elapsed(this.to - this.from)}${folded}. Drag to zoom; [ ] go through the calls of a run.`);
    this.draw();
  }

  /** The place of a time, from 0 to 1. */
  place(time) {
    const [from, to] = this.zoom ?? [this.from, this.to];
    const gaps = this.gaps.filter(([begin, end]) => begin >= from && end <= to);
    const idle = gaps.reduce((sum, [begin, end]) => sum + end - begin, 0);
    const scale = (1 - FOLDED * gaps.length) / Math.max(0.001, to - from - idle);
    let x = 0;
    let at = from;
    for (const [begin, end] of gaps) {
      if (time <= begin) break;
      x += (begin - at) * scale + (time >= end ? FOLDED : (FOLDED * (time - begin)) / (end - begin));
      at = Math.min(time, end);
      if (time < end) return x;
    }
    return x + (time - at) * scale;
  }

  /** The time at a place. */
  time(x) {
    let [low, high] = this.zoom ?? [this.from, this.to];
    for (let step = 0; step < 40; step++) {
      const middle = (low + high) / 2;
      if (this.place(middle) < x) low = middle; else high = middle;
    }
    return low;
  }

  draw() {
    this.version = (this.version ?? 0) + 1;
    const marks = [];
    const columns = innerWidth < 760 ? 1 : 7;
    const step = this.time(1 / columns) - this.time(0);
    for (let at = 0; at <= columns; at++) {
      const time = this.time(at / columns);
      const since = step < 0.1 ? `${(time - this.from).toFixed(2)}s` : elapsed(time - this.from);
      marks.push(h('span', {style: {left: `${(100 * at) / columns}%`}}, at ? `+${since}` : clock(time).slice(-8)));
    }
    put(this.axis, h('div.marks', marks));
    this.list.set(this.data.lanes);
  }

  make(lane) {
    const row = store.rows.get(lane.run);
    const depth = store.path(lane.run).length;
    const name = h('a.lane-name', {href: `/run/${lane.run}`, style: {'--level': depth}});
    const svg = h('svg.lane-spans', {role: 'img', preserveAspectRatio: 'none', viewBox: `0 0 1000 ${LANE}`});
    const element = h('div.lane', {role: 'listitem'}, name, svg);
    let drawn = 0;
    return {element, update: () => {
      if (drawn === this.version) return;
      drawn = this.version;
      const current = store.rows.get(lane.run) ?? row;
      put(name, current && h('span', {class: `mark ${current.status}`, 'aria-hidden': 'true'}, MARKS[current.status]), ` ${nameOf(current) || lane.run}`);
      const now = this.data.lanes.find((one) => one.run === lane.run) ?? lane;
      svg.setAttribute('aria-label', lineOf(current, now));
      element.classList.toggle('at', this.data.lanes[this.at]?.run === lane.run);
      put(svg, this.gaps.map(([begin]) => h('rect.idle', {x: this.place(begin) * 1000, y: 0, width: FOLDED * 1000, height: LANE})), this.rects(now));
    }};
  }

  rects(lane) {
    const rects = [];
    let last = {};
    lane.spans.forEach((span, number) => {
      const [kind, from, to, , seq] = span;
      const x = this.place(from) * 1000;
      const end = this.place(to ?? this.to) * 1000;
      if (end < 0 || x > 1000) return;
      // Spans that would be drawn on top of each other are drawn once.
      const isAt = number === this.call && this.data.lanes[this.at]?.run === lane.run;
      if (!isAt && last.kind === kind && end < last.end + 0.5) return;
      last = {kind, end: Math.max(end, x + 1)};
      const rect = h('rect', {class: `span-${kind} ${to === null ? 'open' : ''} ${isAt ? 'current' : ''}`, x: x.toFixed(2), y: kind === 'tool' ? 8 : 5, width: Math.max(1, end - x).toFixed(2), height: kind === 'tool' ? 10 : 16, rx: 1.5,
        onclick: () => this.go(`/run/${lane.run}/transcript#${seq}`)});
      rect.said = spanText(span);
      rects.push(rect);
    });
    return rects;
  }

  /** Dragging over the lanes zooms in. */
  brush() {
    let begin = null;
    let isDrag = false;
    const box = h('div.brush', {hidden: true});
    this.element.append(box);
    const area = () => this.axis.firstChild?.getBoundingClientRect();
    const part = (event) => { const rect = area(); return Math.max(0, Math.min(1, (event.clientX - rect.left) / rect.width)); };
    this.lanes.addEventListener('pointerdown', (event) => { if (event.button === 0 && area() && event.clientX > area().left && event.pointerType === 'mouse') begin = part(event); });
    this.onmove = (event) => {
      if (begin === null) return;
      const rect = area();
      const [from, to] = [Math.min(begin, part(event)), Math.max(begin, part(event))];
      box.hidden = to - from < 0.01;
      Object.assign(box.style, {left: `${rect.left + from * rect.width}px`, width: `${(to - from) * rect.width}px`});
    };
    this.onup = (event) => {
      if (begin === null) return;
      const [from, to] = [Math.min(begin, part(event)), Math.max(begin, part(event))];
      begin = null;
      box.hidden = true;
      isDrag = to - from >= 0.01;
      if (isDrag) this.setZoom([this.time(from), this.time(to)]);
    };
    addEventListener('pointermove', this.onmove);
    addEventListener('pointerup', this.onup);
    // The end of a drag is no click on the call below it.
    this.lanes.addEventListener('click', (event) => { if (isDrag) event.stopPropagation(); isDrag = false; }, {capture: true});
    this.onresize = () => this.data && this.from && this.draw();
    addEventListener('resize', this.onresize);
  }

  setZoom(zoom) {
    this.zoom = zoom;
    this.reset.hidden = !zoom;
    this.draw();
  }

  zoomBy(factor) {
    const [from, to] = this.zoom ?? [this.from, this.to];
    const middle = (from + to) / 2;
    const half = ((to - from) / 2) * factor;
    this.setZoom(factor > 1 && half * 2 >= this.to - this.from ? null : [Math.max(this.from, middle - half), Math.min(this.to, middle + half)]);
  }

  shift(part) {
    if (!this.zoom) return;
    const [from, to] = this.zoom;
    const by = Math.max(this.from - from, Math.min(this.to - to, (to - from) * part));
    this.setZoom([from + by, to + by]);
  }

  /** Choose a run, or one of its calls, and say what it is. */
  choose(lane, call) {
    this.at = Math.max(0, Math.min(this.data.lanes.length - 1, lane));
    const {run, spans} = this.data.lanes[this.at];
    this.call = call === null ? null : Math.max(0, Math.min(spans.length - 1, call));
    const span = spans[this.call];
    const text = span ? `${this.call + 1} of ${spans.length}, ${spanText(span)}` : lineOf(store.rows.get(run), this.data.lanes[this.at]);
    setText(this.said, text);
    announce(text);
    this.draw();
    this.list.reveal(this.at);
  }

  open() {
    const {run, spans} = this.data.lanes[this.at];
    const span = spans[this.call];
    this.go(span ? `/run/${run}/transcript#${span[4]}` : `/run/${run}`);
  }

  keys() {
    const leave = {...this.zoom && {Escape: () => this.setZoom(null)}, t: () => this.go(`/?root=${this.root}`)};
    return !this.from ? leave : {
      ...leave,
      j: () => this.choose(this.at + 1, null), k: () => this.choose(this.at - 1, null), Enter: () => this.open(),
      ']': () => this.choose(this.at, (this.call ?? -1) + 1), '[': () => this.choose(this.at, (this.call ?? 1) - 1),
      '+': () => this.zoomBy(0.5), '-': () => this.zoomBy(2), h: () => this.shift(-0.3), l: () => this.shift(0.3),
    };
  }
}

const spanText = ([kind, from, to, text]) => `${kind} ${text} (${elapsed((to ?? store.now()) - from)})`;

const lineOf = (row, {spans}) => `${nameOf(row)}: ${counted(spans.length, 'call')}`;

// --- usage -------------------------------------------------------------------------------------------------------------

export class UsageView {
  constructor(go) {
    this.go = go;
    this.title = 'Usage';
    this.body = h('div.usage', h('p.quiet', 'Reading…'));
    this.element = h('div.usage-page', h('h1', 'Usage'), this.body);
    this.load();
  }

  dispose() {}

  async load() {
    const found = await get('/api/usage').catch(unread(this.body));
    if (!found) return;
    const total = found.day[1];
    if (!total) { put(this.body, h('p.quiet', 'No run has ended yet.')); return; }
    put(this.body,
      h('ul.stats', [[total.count, 'runs'], [count(total.input), 'tokens in'], [count(total.output), 'tokens out'], [costText(total), 'cost']]
        .map(([value, name]) => h('li.stat', h('strong', value), ' ', h('span', name)))),
      this.plot('By day', [...found.day[0]].reverse()), this.plot('By model', found.model[0]), this.plot('By agent', found.agent[0]), this.plot('By command', found.command[0]),
      h('p.quiet', 'Runs that have ended, the latest 10,000; each with its own use, without that of its subagents.'));
  }

  plot(title, rows) {
    const shown = rows.slice(-40);
    if (!shown.length) return null;
    const byCost = shown.some((row) => row.cost);
    const size = (row) => (byCost ? row.cost ?? 0 : row.input + row.output);
    const most = Math.max(...shown.map(size), 1e-9);
    return h('section', h('h2', title),
      h('div.scroll', h('table.bars',
        h('thead', h('tr', h('th', 'name'), h('th', byCost ? 'cost' : 'tokens'), h('th.number', 'cost'), h('th.number', 'in'), h('th.number', 'out'), h('th.number', 'runs'))),
        h('tbody', shown.map((row) => h('tr',
          h('th', {scope: 'row'}, row.name),
          h('td.bar-cell', h('span.bar', {style: {width: `${Math.max(0.5, (100 * size(row)) / most)}%`}})),
          h('td.number', costText(row)), h('td.number', count(row.input)), h('td.number', count(row.output)), h('td.number', row.count)))))));
  }

  update() {}

  keys() { return {}; }
}

/** Known costs, and that some are unknown. */
function costText(row) {
  if (row.cost === null) return '?';
  return row.unknown_costs ? `${money(row.cost)} + ?` : money(row.cost, row.input + row.output);
}
