// One run: overview, transcript, notes, diff and events.

import {addressOf, againRun, askText, cancelRuns, exportRun, isReady, pinRun, resumeRuns, say, unread} from './actions.js';
import {clock, count, counted, diffLines, elapsed, h, lastRecords, markdown, meter, money, put, setText, statusMark, usage} from './dom.js';
import {RecordList} from './lists.js';
import {ApiError, get, isLive, nameOf, store, took} from './store.js';

const TABS = ['overview', 'transcript', 'notes', 'diff', 'events'];

const act = (name, does, kind = '') => h('button', {class: kind, disabled: !store.canAct, onclick: does}, name);

export class RunView {
  constructor(go, id, tab = 'overview', hash = '') {
    this.go = go;
    this.id = id;
    this.tab = TABS.includes(tab) ? tab : 'overview';
    this.title = nameOf(store.rows.get(id)) || id;
    this.head = h('header.run-head');
    this.body = h('div.run-body', {id: 'run-body'});
    this.element = h('div.run-page', this.head, this.body);
    this.ontext = ({detail}) => { if (detail.run === id) this.list?.write(detail.piece); };
    this.onrecords = ({detail}) => { if (detail.run === id) { this.list?.records(detail.heads); this.refresh(); } };
    store.addEventListener('text', this.ontext);
    store.addEventListener('records', this.onrecords);
    store.stream.watch(id);
    this.timer = setInterval(() => this.tick(), 1000);
    this.heading();
    this.load(hash);
  }

  dispose() {
    clearInterval(this.timer);
    clearTimeout(this.refreshing);
    store.removeEventListener('text', this.ontext);
    store.removeEventListener('records', this.onrecords);
    store.stream.watch('');
    this.list?.dispose();
    this.isGone = true;
  }

  /** Called once the page is in the document. */
  placed() { this.list?.placed(); }

  async load(hash = '') {
    const target = /^#\d+$/.test(hash) ? Number(hash.slice(1)) : 0;
    if (target && this.tab === 'overview') this.tab = 'transcript';
    const row = store.rows.get(this.id);
    // A link to a record needs no details of the run.
    if (!(target && row)) {
      try {
        this.whole = await get(`/api/runs/${this.id}`);
      } catch (error) {
        if (!(error instanceof ApiError)) throw error;
        const isGone = error.status === 404;
        this.isUnread = !isGone;
        put(this.head, h('h1', isGone ? 'This run is not in the journal' : 'This run cannot be read'));
        put(this.body, h('p', isGone ? 'It may have been pruned, or the link is of another home.' : error.message), h('p', h('a', {href: '/'}, 'Back to the board')));
        return;
      }
    }
    if (this.isGone) return;
    this.heading();
    this.list?.dispose();
    this.list = null;
    const draw = {overview: () => this.overview(), notes: () => this.notes(), diff: () => this.diff()};
    if (draw[this.tab]) await draw[this.tab]();
    else {
      this.list = new RecordList(this.id, Math.max(row?.seq ?? 0, this.whole?.seq ?? 0), {isRaw: this.tab === 'events', target});
      put(this.body, this.list.element);
      this.list.placed();
      if (this.whole?.live_text) this.list.write(this.whole.live_text, true);
    }
  }

  /** Read the details again, at most once in two seconds. */
  refresh() {
    if (this.tab !== 'overview' || this.refreshing) return;
    this.refreshing = setTimeout(async () => {
      this.refreshing = null;
      // A text that is being copied stays.
      if (String(getSelection())) { this.refresh(); return; }
      try {
        this.whole = await get(`/api/runs/${this.id}`);
      } catch { return; }
      if (!this.isGone && this.tab === 'overview') this.overview();
    }, 2000);
  }

  update(what) {
    const row = store.rows.get(this.id);
    if ((what === 'board' && !(row && this.list)) || (this.isUnread && what === 'state' && store.state === 'live')) {
      this.isUnread = false;
      this.load(location.hash);
      return;
    }
    if (!row || what === 'doing') return;
    this.list?.grow(row.seq);
    if (what === 'state' && this.whole && this.tab === 'overview') this.overview();
    // A button must not be replaced under the pointer or the focus: the head is made anew only when it is another one.
    const key = `${row.status} ${row.flags} ${store.state} ${store.questions().some((one) => one.run === this.id)}`;
    if (this.key_ !== key) this.heading();
    this.key_ = key;
    this.tick();
    if (this.seq !== row.seq) this.refresh();
    this.seq = row.seq;
  }

  tick() {
    const {row} = this;
    if (!row || !this.figures) return;
    const texts = [took(row), usage(row.usage ?? store.used(this.id)), row.model, counted(row.turns, 'turn'), counted(row.tool_calls, 'tool call')];
    texts.forEach((text, at) => setText(this.figures[at], text));
  }

  // --- the head -----------------------------------------------------------------------------------------------------

  heading() {
    const {row} = this;
    if (!row) return;
    const asked = store.questions().find((one) => one.run === this.id);
    this.figures = [1, 2, 3, 4, 5].map(() => h('span'));
    this.title = nameOf(row);
    const path = store.path(this.id);
    redraw(this.head,
      h('nav.crumbs', {'aria-label': 'Callers'}, h('a', {href: '/'}, 'Board'), path.map((one) => [' › ', h('a', {href: `/run/${one.id}`}, nameOf(one))])),
      h('div.run-title',
        h('h1', nameOf(row)), statusMark(row.status), row.flags.map((name) => h('span', {class: `flag ${name}`}, name)),
        h('div.buttons',
          asked && h('a.button.main', {href: addressOf(asked)}, asked.about ? 'Review' : 'Answer'),
          isLive(row) && row.status !== 'interrupted' && act('Cancel…', () => cancelRuns([this.id])),
          this.canResume && !asked && act('Resume', () => this.resume(), row.status === 'interrupted' || row.status === 'partial' ? 'main' : ''),
          (this.whole?.can_again ?? false) && act('Again…', () => this.again()),
          act('Pin', () => pinRun(this.id)),
          h('button', {onclick: () => exportRun(this.id, 'report.html')}, 'Report'),
          h('button', {onclick: () => exportRun(this.id)}, 'Export'))),
      h('p.facts',
        this.figures,
        h('a', {href: `/tree/${row.root}`}, 'Timeline'), h('code.quiet', this.id)),
      h('nav.tabs', {'aria-label': 'Parts of the run'}, TABS.map((name) =>
        h('a', {href: this.address(name), 'aria-current': name === this.tab ? 'page' : null}, name))));
    this.tick();
    store.changed('title');
  }

  address(tab, id = this.id) { return tab === 'overview' ? `/run/${id}` : `/run/${id}/${tab}`; }

  get canResume() { return this.row && (!isLive(this.row) || this.row.status === 'interrupted'); }

  get row() {
    const one = this.whole;
    return store.rows.get(this.id) ?? (one && {...one, id: this.id, label: one.label, flags: [], root: this.id, began_at: Date.parse(one.started_at) / 1000,
      ended_at: one.ended_at ? Date.parse(one.ended_at) / 1000 : null});
  }

  // --- tabs ---------------------------------------------------------------------------------------------------------

  overview() {
    const one = this.whole;
    const row = store.rows.get(this.id);
    const ended = one.outcome;
    redraw(this.body,
      ended && ended.status !== 'completed' && this.why(ended, one),
      one.damage && h('p.notice.damaged', one.damage),
      row?.status === 'queued' && h('p.notice', row.reason),
      h('div.columns2',
        h('div',
          ended && h('section', h('h2', 'Result'), markdown(ended.report || ended.summary)),
          !ended && store.doing.get(this.id) && h('section', h('h2', 'Doing now'), h('p.code', store.doing.get(this.id)[1])),
          !ended && one.live_text && h('section', h('h2', 'Writing'), h('pre.clip', one.live_text.slice(-3000))),
          h('section', h('h2', 'Task'), h('div.prompt', one.prompt)),
          ended?.artifacts?.length > 0 && h('section', h('h2', 'Files'), h('ul', ended.artifacts.map((file) => h('li', h('code', file.path), file.summary && ` ${file.summary}`)))),
          ended?.warnings?.length > 0 && h('section', h('h2', 'Warnings'), h('ul', ended.warnings.map((text) => h('li', text)))),
          one.children.length > 0 && this.subagents(one.children)),
        h('div',
          h('section', h('h2', 'Limits'), this.limits(one)),
          one.turns_used.length > 0 && h('section', h('h2', 'Turns'), turnsPlot(one.turns_used), one.is_cut && h('p.quiet', 'The last turns.')),
          h('section', h('h2', 'Last records'), lastRecords(this.id, one.last_records)))));
  }

  why(ended, one) {
    const [error] = ended.errors ?? [];
    return h('section', {class: `why ${ended.status}`},
      h('h2', `Why it stopped: ${ended.status}`),
      error ? ended.errors.map((each) => [h('p', each.message), h('p.remedy', each.recommendation)]) : h('p', ended.summary),
      lastRecords(this.id, one.last_records.slice(-4, -1)),
      (!error || error.recoverable) && h('div.buttons', act('Resume', () => this.resume(), 'main'), one.can_again && act('Again…', () => this.again())));
  }

  limits(one) {
    const row = store.rows.get(this.id);
    const rows = [];
    if (one.deadline) rows.push(['Deadline', clock(Date.parse(one.deadline) / 1000)]);
    const filled = (name, part, text) => rows.push([name, [meter(part, text), ' ', text]]);
    if (one.context_window) {
      const part = one.context_tokens / one.context_window;
      filled('Context', part, `${Math.round(part * 100)} % of ${count(one.context_window)}`);
    }
    for (const {resource, used, cap} of one.budgets) {
      const shown = resource === 'cost' ? money : count;
      filled(`Budget: ${resource}`, used / cap, `${shown(used)} of ${shown(cap)}`);
    }
    rows.push(['Tools', one.tools.join(', ') || 'none']);
    rows.push(['Model', one.model ?? '–'], ['Agent', one.subagent || '–'], ['Started', clock(Date.parse(one.started_at) / 1000)]);
    if (one.ended_at) rows.push(['Ended', clock(Date.parse(one.ended_at) / 1000)]);
    if (one.round) rows.push(['Rounds', String(one.round + 1)]);
    rows.push(['Own use', usage(one.own_usage)]);
    if (one.children.length) rows.push(['With subagents', usage(one.usage)]);
    if (one.workspace) rows.push(['Folder', h('code', one.workspace)]);
    if (row?.retries) rows.push(['Retries', String(row.retries)]);
    return h('dl.facts-list', rows.map(([name, value]) => [h('dt', name), h('dd', value)]));
  }

  subagents(children) {
    return h('section', h('h2', counted(children.length, 'subagent')),
      h('ul.subagents', children.slice(0, 100).map((one) => {
        const row = store.rows.get(one.session_id);
        return h('li', statusMark(row?.status ?? one.status), ' ', h('a', {href: `/run/${one.session_id}`}, one.label), ' ',
          h('span.quiet', row ? money(store.used(row.id).cost, store.used(row.id).requests) : ''));
      })),
      children.length > 100 && h('p', h('a', {href: `/?root=${store.rows.get(this.id)?.root ?? this.id}`}, `All ${children.length} on the board`)));
  }

  async notes() {
    const found = await get(`/api/runs/${this.id}/notes`).catch(unread(this.body));
    if (!found) return;
    const {notes} = found;
    put(this.body, notes.length ? h('ol.notes', notes.map(([seq, at, text]) =>
      h('li', h('a.quiet', {href: `/run/${this.id}/transcript#${seq}`}, clock(at)), markdown(text)))) : h('p.quiet', 'No notes.'));
  }

  async diff() {
    put(this.body, h('p.quiet', 'Reading…'));
    put(this.body, await diffPage(this.id));
  }

  // --- actions ------------------------------------------------------------------------------------------------------

  async resume() {
    const text = await askText('Resume, with a further message if you like.', 'Resume');
    if (text !== null) await resumeRuns([this.id], text.trim());
  }

  async again() {
    const text = await askText('Start it again. The task:', 'Start', this.whole.prompt);
    if (text !== null) againRun(this.id, text.trim() === this.whole.prompt.trim() ? {} : {prompt: text});
  }

  sibling(step) {
    const row = store.rows.get(this.id);
    const list = row?.parent ? store.children.get(row.parent) : store.roots;
    const next = list?.[list.indexOf(this.id) + step];
    if (next) this.go(this.address(this.tab, next)); else say('No further sibling.');
  }

  keys() {
    const {list, row} = this;
    const asked = store.questions().find((one) => one.run === this.id);
    return {
      j: () => list?.move(1), k: () => list?.move(-1),
      l: () => list && !list.open.has(list.at) && list.toggle(list.at), h: () => list?.open.has(list.at) && list.toggle(list.at),
      f: () => list?.follow(),
      c: () => cancelRuns([this.id]), r: () => (asked ? this.go(addressOf(asked)) : this.canResume && isReady() && this.resume()),
      a: () => asked && this.go(addressOf(asked)), d: () => asked && this.go(addressOf(asked)),
      e: () => exportRun(this.id), t: () => row && this.go(`/tree/${row.root}`),
      '[': () => this.sibling(-1), ']': () => this.sibling(1),
      ...Object.fromEntries(TABS.map((name, at) => [at + 1, () => this.go(this.address(name))])),
    };
  }
}

/** Replace the content of an element; the link or button with the focus keeps it. */
function redraw(element, ...children) {
  const held = element.contains(document.activeElement) && document.activeElement.textContent;
  put(element, children);
  if (held) [...element.querySelectorAll('a, button')].find((one) => one.textContent === held)?.focus();
}

/** Tokens of each turn as bars, and how full the context was as a line. */
function turnsPlot(turns) {
  const shown = turns.slice(-60);
  const width = 600;
  const height = 110;
  const most = Math.max(1, ...shown.map((turn) => turn.input + turn.output));
  const step = width / Math.max(8, shown.length);
  const cost = shown.every((turn) => turn.cost !== null) ? shown.reduce((sum, turn) => sum + turn.cost, 0) : null;
  const svg = h('svg', {viewBox: `0 0 ${width} ${height}`, class: 'plot', role: 'img', 'aria-label': `${turns.length} turns, ${money(cost)}; the most tokens of one turn are ${count(most)}`});
  shown.forEach((turn, at) => {
    const input = (turn.input / most) * (height - 20);
    const output = (turn.output / most) * (height - 20);
    const title = h('title', `turn ${turns.length - shown.length + at + 1}: ${usage(turn)}, ${elapsed(turn.to - turn.from)}`);
    svg.append(h('g', {class: turn.failed ? 'turn bad' : 'turn'}, title,
      h('rect.in', {x: at * step + 1, y: height - input, width: Math.max(1, step - 2), height: input}),
      h('rect.out', {x: at * step + 1, y: height - input - output, width: Math.max(1, step - 2), height: Math.max(output, turn.output ? 1 : 0)})));
  });
  return h('figure', svg, h('figcaption.quiet', h('span.key.in', 'in'), ' ', h('span.key.out', 'out'), ` · at most ${count(most)} tokens a turn`));
}

/** The changed files of a run; each opens its patch. */
async function diffPage(run) {
  const place = h('div.diff-page');
  let found;
  try {
    found = await get(`/api/runs/${run}/diff`);
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    put(place, h('p.quiet', error.status === 400 ? 'This run has no worktree or branch of its own, so there is no diff.' : error.message));
    return place;
  }
  put(place, h('p.quiet', `Branch ${found.branch}, from ${found.base.slice(0, 12)}. ${found.files.length} changed files.`));
  for (const file of found.files) place.append(fileDiff(run, file, found.files.length <= 3));
  if (found.more) place.append(h('p.quiet', `… ${found.more} more files`));
  return place;
}

function fileDiff(run, file, isOpen) {
  const body = h('div');
  const counts = file.added === null ? h('span.quiet', 'binary')
    : [h('span.plus', `+${file.added}`), ' ', h('span.minus', `−${file.removed}`)];
  const details = h('details.file', h('summary', h('code', file.path), ' ', counts), body);
  const load = async () => {
    if (body.hasChildNodes()) return;
    if (file.is_withheld) { put(body, h('p.quiet', 'This file usually holds secrets and is not shown.')); return; }
    put(body, h('p.quiet', 'Reading…'));
    const found = await get(`/api/runs/${run}/diff?path=${encodeURIComponent(file.path)}`).catch(unread(body));
    if (found) put(body, diffLines(found.patch), found.is_cut && h('p.quiet', 'The rest is not shown.'));
  };
  details.addEventListener('toggle', () => { if (details.open) load(); });
  details.open = isOpen;
  return details;
}
