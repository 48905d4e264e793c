// The board: what waits, then all runs as a tree.

import {addressOf, againRun, ask, cancelRuns, countDown, exportRun, isReady, questionLine, resumeRuns, say, unread} from './actions.js';
import {counted, duration, h, lastRecords, markdown, MARKS, meter, money, put, setText, statusMark, tokens} from './dom.js';
import {get, isLive, nameOf, store, took} from './store.js';
import {VirtualList} from './lists.js';

const FOLD_ABOVE = 20;
const ENDED = new Set(['completed', 'partial', 'failed', 'cancelled', 'rejected']);
const SORTS = {
  cost: (row) => -(store.used(row.id).cost ?? Infinity),
  tokens: (row) => -(store.used(row.id).input + store.used(row.id).output),
  silent: (row) => lastSign(row),
  newest: (row) => -row.requested_at,
};
const FLAGS = ['silent', 'loop', 'hot', 'retrying', 'interrupted', 'overdue'];

/** The last sign of life of a run. */
const lastSign = (row) => Math.max(row.last_at, store.doing.get(row.id)?.[2] ?? 0);

/** Whether a run should be seen although its siblings are folded. */
const standsOut = (row) => row.flags.length > 0 || row.status === 'waiting' || row.status === 'blocked' || row.status === 'failed';

// What a person who comes back to the board finds as it was.
const folded = new Set();
const opened = new Set();
let lastKey = '';

export class BoardView {
  constructor(go) {
    this.go = go;
    this.title = 'Board';
    this.selected = new Set();
    this.items = [];
    this.at = 0;
    this.query = new URLSearchParams(location.search);
    this.element = h('div.board');
    this.stats = h('ul.stats', {'aria-label': 'Totals'});
    this.asking = h('section.asking', {'aria-labelledby': 'asking-title'});
    this.notice = h('div.notice', {hidden: true});
    this.tree = h('div.tree', {role: 'tree', tabindex: '0', 'aria-label': 'Runs', 'aria-multiselectable': 'true'});
    this.news = h('button.news', {hidden: true, onclick: () => this.sort()});
    this.bar = h('div.selection', {hidden: true, role: 'region', 'aria-label': 'Selected runs'});
    this.peek = h('aside.peek', {hidden: true, 'aria-label': 'Peek'});
    this.list = new VirtualList(this.tree, {
      height: () => (innerWidth < 760 ? 58 : 36),
      make: (item) => (item.kind === 'fold' ? this.makeFold(item) : this.makeRow(item)),
      keyOf: (item) => item.key,
    });
    this.columns = h('div.columns', {'aria-hidden': 'true'},
      ['run', 'doing now', 'time', 'context', 'in', 'out', 'cost', 'age'].map((name) => h('span', {class: `c-${name.split(' ')[0]}`}, name)));
    this.element.append(
      h('h1.sr', 'Board'), this.stats, this.notice, this.asking, this.filters(), this.columns,
      this.news, this.tree, this.bar, this.peek);
    this.tree.addEventListener('focus', () => { this.activate(); this.list.soon(); });
    this.timer = setInterval(() => this.tick(), 1000);
    this.update('board');
  }

  dispose() {
    clearInterval(this.timer);
    this.list.dispose();
    lastKey = this.tree.hasAttribute('aria-activedescendant') ? this.current?.key : '';
  }

  /** Called once the board is in the document: the row that was current when it was left is current again. */
  placed() {
    const at = this.items.findIndex((one) => one.key === lastKey);
    if (at >= 0) this.move(at);
  }

  // --- filters ------------------------------------------------------------------------------------------------------

  filters() {
    const choose = (name, label, options) =>
      h('label', h('span.sr', label), h('select', {name, onchange: (event) => this.filter(name, event.target.value)},
        options.map(([value, text]) => h('option', {value, selected: this.query.get(name) === value}, text))));
    this.search = h('input', {
      type: 'search', name: 'q', placeholder: 'Filter runs  ( / )', 'aria-label': 'Filter runs', value: this.query.get('q') ?? '',
      oninput: (event) => this.filter('q', event.target.value),
    });
    const hide = h('input', {type: 'checkbox', checked: this.query.get('hide') === 'completed',
      onchange: (event) => this.filter('hide', event.target.checked ? 'completed' : '')});
    const root = this.query.get('root');
    return h('form.filters', {role: 'search', onsubmit: (event) => event.preventDefault()},
      this.search,
      choose('status', 'Status', [['', 'any status'], ...Object.keys(MARKS).map((name) => [name, name])]),
      choose('flag', 'Flag', [['', 'any flag'], ['any', 'flagged'], ...FLAGS.map((name) => [name, name])]),
      choose('sort', 'Order', [['', 'as started'], ['newest', 'newest first'], ['cost', 'by cost'], ['tokens', 'by tokens'], ['silent', 'longest silent']]),
      h('label.check', hide, 'hide completed'),
      root && h('a.chip', {href: '/'}, `one tree only ✕`));
  }

  filter(name, value) {
    if (value) this.query.set(name, value); else this.query.delete(name);
    history.replaceState(null, '', this.address);
    this.at = 0;
    this.items = [];
    this.sort();
  }

  get address() {
    const text = this.query.toString();
    return text ? `/?${text}` : '/';
  }

  matches(row) {
    const status = this.query.get('status');
    const flag = this.query.get('flag');
    const text = (this.query.get('q') ?? '').toLowerCase();
    if (status && row.status !== status) return false;
    if (flag && !(flag === 'any' ? row.flags.length : row.flags.includes(flag))) return false;
    if (this.query.get('hide') === 'completed' && row.status === 'completed') return false;
    if (this.query.get('root') && row.root !== this.query.get('root')) return false;
    if (!text) return true;
    return [row.id, row.label, row.agent, row.command, row.model, store.doing.get(row.id)?.[1] ?? ''].some((one) => one.toLowerCase().includes(text));
  }

  // --- the rows -----------------------------------------------------------------------------------------------------

  sort() {
    this.order = null;
    this.flatten();
  }

  flatten() {
    const key = SORTS[this.query.get('sort')];
    const items = [];
    if (key) this.flat(items, key); else this.walk(store.tops(), 1, items);
    // The current row stays the same run, wherever it is now.
    const at = items.findIndex((one) => one.key === this.current?.key);
    this.at = Math.max(0, at < 0 ? Math.min(this.at, items.length - 1) : at);
    this.items = items;
    if (this.tree.hasAttribute('aria-activedescendant')) this.activate();
    this.list.set(items);
    this.isEmpty();
  }

  /** A sorted list keeps its order until it is sorted again; new runs wait behind a button. */
  flat(items, key) {
    const rows = [...store.rows.values()].filter((row) => this.matches(row));
    this.order ??= rows.map((row) => [key(row), row.id]).sort((a, b) => a[0] - b[0]).map(([, id]) => id);
    const known = new Set(this.order);
    const shown = new Set(rows.map((row) => row.id));
    for (const id of this.order) if (shown.has(id)) items.push({kind: 'run', key: id, id, level: 1});
    const fresh = rows.filter((row) => !known.has(row.id)).length;
    this.news.hidden = !fresh;
    if (fresh) setText(this.news, `${fresh} new`);
  }

  walk(ids, level, items) {
    this.news.hidden = true;
    const hidden = new Map();
    const keep = (id) => {
      if (hidden.has(id)) return hidden.get(id);
      const row = store.rows.get(id);
      // A run stays if it matches or something below it does.
      const is = Boolean(row) && (this.matches(row) || (store.children.get(id) ?? []).some(keep));
      hidden.set(id, is);
      return is;
    };
    const visit = (list, depth, parent) => {
      const kept = list.filter(keep);
      const isFan = parent && kept.length > FOLD_ABOVE;
      if (isFan) items.push({kind: 'fold', key: `fold ${parent}`, parent, level: depth, ids: kept, isOpen: opened.has(parent)});
      for (const id of kept) {
        const row = store.rows.get(id);
        if (isFan && !opened.has(parent) && !standsOut(row)) continue;
        const below = store.children.get(id) ?? [];
        const isOpen = below.length > 0 && !folded.has(id);
        items.push({kind: 'run', key: id, id, level: depth, has: below.length > 0, isOpen});
        if (isOpen) visit(below, depth + 1, id);
      }
    };
    visit(ids, level, null);
  }

  makeFold(item) {
    const element = h('div.row.fold', {role: 'treeitem', 'aria-selected': 'false', onclick: () => this.toggle(this.items.find((one) => one.key === item.key))});
    const text = h('span.c-run');
    element.append(text);
    return {element, update: (now, at) => {
      const counts = {};
      for (const id of now.ids) { const {status} = store.rows.get(id); counts[status] = (counts[status] ?? 0) + 1; }
      const words = Object.entries(counts).map(([status, number]) => `${number} ${status}`).join(', ');
      this.placeRow(element, now, at);
      setText(text, `${now.isOpen ? '▾' : '▸'} ${counted(now.ids.length, 'subagent')}: ${words}`);
    }};
  }

  placeRow(element, now, at) {
    element.id = `row-${at}`;
    element.style.setProperty('--level', now.level - 1);
    element.classList.toggle('at', at === this.at);
    element.setAttribute('aria-level', now.level);
    if (now.has || now.ids) element.setAttribute('aria-expanded', now.isOpen); else element.removeAttribute('aria-expanded');
  }

  makeRow(item) {
    const part = (name, ...more) => h('span', {class: `c-${name}`}, ...more);
    const fold = h('button.twist', {tabindex: '-1', 'aria-hidden': 'true', onclick: (event) => { event.stopPropagation(); this.toggle(this.items.find((one) => one.key === item.key)); }});
    const mark = h('span.mark', {'aria-hidden': 'true'});
    const word = h('span.sr');
    const label = h('a.label', {href: `/run/${item.id}`, tabindex: '-1'});
    const model = h('span.model.quiet');
    const flags = h('span.flags');
    const doing = part('doing');
    const time = part('time');
    const context = part('context');
    const [input, output, cost, age] = ['in', 'out', 'cost', 'age'].map((name) => part(name));
    const element = h('div.row', {role: 'treeitem', 'aria-selected': 'false', onclick: () => this.choose(item.id)},
      part('run', fold, mark, word, label, flags, model), doing, time, context, input, output, cost, age);
    let before = null;
    let place = '';
    return {element, update: (now, at) => {
      const row = store.rows.get(item.id);
      if (!row) return;
      const isPicked = this.selected.has(item.id);
      const key = `${at} ${now.level} ${at === this.at} ${isPicked} ${now.has} ${now.isOpen}`;
      if (place !== key) {
        place = key;
        this.placeRow(element, now, at);
        element.classList.toggle('picked', isPicked);
        element.setAttribute('aria-selected', isPicked);
        setText(fold, now.has ? (now.isOpen ? '▾' : '▸') : '');
      }
      const used = store.used(item.id);
      const at_ = store.doing.get(item.id);
      const shown = doingText(row, at_);
      const silent = isLive(row) ? store.now() - lastSign(row) : 0;
      setText(doing, shown + (silent > 15 && row.status === 'running' && !store.children.has(item.id) ? ` · silent ${duration(silent)}` : ''));
      const look = `c-doing ${at_ && shown === at_[1] ? at_[0] : ''}`;
      if (doing.className !== look) doing.className = look;
      setText(age, duration(store.now() - row.requested_at));
      setText(input, tokens(used.input, used.estimated));
      setText(output, tokens(used.output, used.estimated));
      setText(cost, money(used.cost, used.requests));
      this.bar_(time, row);
      if (before === row) return;
      before = row;
      setText(mark, MARKS[row.status] ?? '·');
      mark.className = `mark ${row.status}`;
      setText(label, nameOf(row));
      setText(model, row.command === 'delegate' ? '' : row.model.replace(/^.*[:/]/, ''));
      put(flags, row.flags.map((name) => h('span', {class: `flag ${name}`}, name)));
      put(context, row.context_window
        ? meter(row.context_tokens / row.context_window, `context ${Math.round((100 * row.context_tokens) / row.context_window)} %`) : '');
      element.dataset.status = row.status;
      setText(word, row.status);
    }};
  }

  bar_(element, row) {
    const end = row.ended_at ?? store.now();
    if (!row.deadline || !isLive(row)) { setText(element, took(row)); element.dataset.key = ''; return; }
    const part = (end - row.began_at) / Math.max(1, row.deadline - row.began_at);
    const text = row.deadline > end ? `${duration(row.deadline - end)} left` : `${duration(end - row.deadline)} over`;
    const key = `${Math.round(part * 100)} ${text}`;
    if (element.dataset.key === key) return;
    element.dataset.key = key;
    put(element, meter(part, text));
  }

  // --- what changes -------------------------------------------------------------------------------------------------

  update(what) {
    if (what === 'state' || what === 'board') this.journal();
    if (what === 'doing') { this.list.soon(); return; }
    if (what === 'waiting' || what === 'board' || what === 'rows') this.questions();
    if (this.structure !== store.structure || what === 'board' || what === 'gone') {
      this.structure = store.structure;
      this.flatten();
    } else this.list.soon();
    this.totals();
    this.chosen();
  }

  tick() {
    this.list.soon();
    countDown(this.asking);
  }

  totals() {
    const found = store.summary();
    const cost = found.unknown ? `${found.cost ? money(found.cost) + ' + ' : ''}?` : money(found.cost, found.tokens);
    const key = JSON.stringify([found, cost]);
    if (this.totalsKey === key) return;
    this.totalsKey = key;
    const stat = (value, name, href, tone = '') => h('li', {class: `stat ${tone}`},
      href ? h('a', {href}, h('strong', value), ' ', h('span', name)) : [h('strong', value), ' ', h('span', name)]);
    put(this.stats,
      stat(found.waiting, 'waiting', '/waiting', found.waiting ? 'waiting' : ''),
      stat(found.running, 'running', '/?status=running'),
      stat(found.flagged, 'flagged', '/?flag=any', found.flagged ? 'partial' : ''),
      stat(found.failed, 'failed', '/?status=failed', found.failed ? 'failed' : ''),
      stat(tokens(found.tokens, found.estimated), 'tokens', '/usage'),
      stat(cost, 'cost', '/usage'),
      stat(found.rate ? money(found.rate) : '–', 'a minute'));
  }

  questions() {
    const all = store.questions();
    const key = all.map((one) => `${one.run} ${one.key} ${one.answered}`).join('|');
    if (this.askedKey === key) return;
    this.askedKey = key;
    this.asking.hidden = !all.length;
    put(this.asking, h('h2', {id: 'asking-title'}, 'Waiting for you'),
      h('ul.questions', all.slice(0, 5).map((one) => h('li', questionLine(one)))),
      all.length > 5 && h('p', h('a', {href: '/waiting'}, `All ${all.length} questions`)));
  }

  journal() {
    const {state, message, remedy} = store.journal;
    this.notice.hidden = state === 'ok';
    this.notice.className = `notice ${state}`;
    if (state === 'none') {
      put(this.notice, h('h2', 'No runs yet'), h('p', 'Start one in a terminal, and it appears here:'),
        h('pre', 'deputy delegate -t "auth=Where are passwords checked?"\ndeputy run "Why does the login test fail?"'));
    } else if (state !== 'ok') {
      const heads = {damaged: 'The journal is damaged', newer: 'The journal is of a newer version', failed: 'The journal cannot be read'};
      put(this.notice, h('h2', heads[state]), h('p', message), markdown(remedy),
        state === 'damaged' && h('p.quiet', 'What can still be read is shown. Nothing can be changed from here.'));
    }
  }

  isEmpty() {
    const all = [...store.rows.values()];
    this.empty?.remove();
    if (store.journal.state !== 'ok' && !all.length) return;
    if (this.items.length && (all.some(isLive) || this.query.toString())) return;
    const text = this.items.length ? 'Nothing is running now. These ended last:' : all.length ? 'No run matches the filter.' : 'No runs yet.';
    this.empty = h('p.quiet.empty', text);
    this.columns.before(this.empty);
  }

  // --- keys and actions ---------------------------------------------------------------------------------------------

  get current() { return this.items[this.at]; }

  move(at) {
    this.at = Math.max(0, Math.min(this.items.length - 1, at));
    this.activate();
    this.tree.focus({preventScroll: true});
    this.list.reveal(this.at);
    if (!this.peek.hidden) this.look();
  }

  /** The first key shows which row is current. */
  step(by) { this.move(document.activeElement === this.tree ? this.at + by : this.at); }

  activate() { this.tree.setAttribute('aria-activedescendant', `row-${this.at}`); }

  choose(id) {
    const at = this.items.findIndex((one) => one.id === id);
    if (at >= 0) this.move(at);
  }

  toggle(item, open) {
    if (!item) return;
    if (item.kind === 'fold') {
      if (open ?? !item.isOpen) opened.add(item.parent); else opened.delete(item.parent);
    } else if (item.has) {
      if (open ?? !item.isOpen) folded.delete(item.id); else folded.add(item.id);
    }
    this.flatten();
  }

  pick() {
    const id = this.current?.id;
    if (!id) return;
    if (this.selected.has(id)) this.selected.delete(id); else this.selected.add(id);
    this.chosen();
    this.list.soon();
  }

  unpick() {
    this.selected.clear();
    this.chosen();
    this.list.soon();
  }

  /** The selected runs, else the current one. */
  targets() { return this.selected.size ? [...this.selected] : this.current?.id ? [this.current.id] : []; }

  chosen() {
    this.bar.hidden = !this.selected.size;
    if (!this.selected.size) { this.chosenKey = ''; return; }
    const isOff = !store.canAct;
    const key = `${this.selected.size} ${isOff}`;
    if (this.chosenKey === key) return;
    this.chosenKey = key;
    put(this.bar, h('strong', `${this.selected.size} selected`),
      [['Cancel…', 'cancel'], ['Resume', 'resume'], ['Again…', 'again']].map(([name, act]) => h('button', {disabled: isOff, onclick: () => this[act]()}, name)),
      h('button.plain', {onclick: () => this.unpick()}, 'Clear'));
  }

  async cancel() {
    if (await cancelRuns(this.targets())) this.unpick();
  }

  async again() {
    const ids = this.targets();
    if (isReady() && await ask(`Start ${counted(ids.length, 'run')} again?`, 'Start')) for (const id of ids) await againRun(id, {});
  }

  async look() {
    const id = this.current?.id;
    if (!id) return;
    this.peek.hidden = false;
    const row = store.rows.get(id);
    const doing = store.doing.get(id);
    // Another run may be shown when this one has been read.
    const more = h('div', h('p.quiet', 'Reading…'));
    put(this.peek, h('p', statusMark(row.status), ' ', h('a', {href: `/run/${id}`}, nameOf(row))),
      doing && h('p.code', doing[1]), more);
    const whole = await get(`/api/runs/${id}`).catch(unread(more));
    if (!whole) return;
    put(more, h('p.clip', whole.prompt), lastRecords(id, whole.last_records.slice(-3)),
      whole.live_text && h('pre.clip', whole.live_text.slice(-1500)), whole.outcome && h('p', whole.outcome.summary));
  }

  close() {
    if (!this.peek.hidden) this.peek.hidden = true;
    else this.unpick();
  }

  sibling(step) {
    const level = this.current?.level;
    for (let at = this.at + step; at >= 0 && at < this.items.length; at += step) {
      if (this.items[at].level < level) return;
      if (this.items[at].level === level) { this.move(at); return; }
    }
  }

  keys() {
    const item = this.current;
    return {
      j: () => this.step(1), k: () => this.step(-1),
      Home: () => this.move(0), End: () => this.move(this.items.length - 1),
      PageDown: () => this.move(this.at + 15), PageUp: () => this.move(this.at - 15),
      l: () => this.toggle(item, true), h: () => this.out(item),
      Enter: () => (item?.kind === 'fold' ? this.toggle(item) : item && this.go(`/run/${item.id}`)),
      ' ': () => (this.peek.hidden ? this.look() : this.close()),
      x: () => this.pick(), c: () => this.cancel(), r: () => this.resume(),
      '/': () => { this.search.focus(); this.search.select(); },
      t: () => item?.id && this.go(`/tree/${store.rows.get(item.id).root}`),
      e: () => item?.id && exportRun(item.id),
      '[': () => this.sibling(-1), ']': () => this.sibling(1),
      Escape: () => this.close(),
    };
  }

  out(item) {
    if (!item) return;
    if (item.isOpen) { this.toggle(item, false); return; }
    for (let at = this.at - 1; at >= 0; at--) if (this.items[at].level < item.level) { this.move(at); return; }
  }

  async resume() {
    const ids = this.targets();
    const asked = ids.length === 1 && store.questions().find((one) => one.run === ids[0]);
    if (asked) { this.go(addressOf(asked)); return; }
    const ready = ids.filter((id) => !['running', 'queued'].includes(store.rows.get(id)?.status));
    if (!ready.length) { if (ids.length) say('A running run needs no resume.'); return; }
    if (!isReady() || (ready.length > 1 && !(await ask(`Resume ${counted(ready.length, 'run')}?`, 'Resume')))) return;
    resumeRuns(ready);
  }
}

function doingText(row, doing) {
  if (ENDED.has(row.status)) return row.reason && row.status !== 'completed' ? row.reason.replaceAll('_', ' ') : '';
  if (row.status === 'waiting' || row.status === 'blocked') return 'waits for you';
  if (row.status === 'queued') return row.reason;
  if (row.status === 'interrupted') return 'its process ended; resume continues it';
  return doing && doing[0] !== 'waiting' ? doing[1] : '';
}
