// What a person does: cancel, resume, start again, export, answer and approve; and what the page says about it.

import {clock, counted, diffLines, duration, exact, FIXED, h, isDiff, plain, put, setText} from './dom.js';
import {ApiError, blob, isLive, nameOf, post, store} from './store.js';

let region;
let toasts;
let lastSaid = 0;
let waitingSaid = null;

/** The places for messages: one live region for screen readers, and notes that vanish. */
export function messagePlaces() {
  region = h('div.sr', {role: 'status', 'aria-live': 'polite'});
  toasts = h('div.toasts');
  return [region, toasts];
}

/** Tell screen readers, at most once in five seconds; the latest message wins. */
export function announce(text) {
  const wait = lastSaid + 5000 - Date.now();
  waitingSaid = text;
  setTimeout(() => {
    if (waitingSaid === null) return;
    lastSaid = Date.now();
    region.textContent = plain(waitingSaid);
    waitingSaid = null;
  }, Math.max(0, wait));
}

/** Show a message for some seconds. */
export function say(text, kind = '') {
  const note = h('div', {class: `toast ${kind}`}, text);
  toasts.append(note);
  announce(text);
  setTimeout(() => note.remove(), kind === 'bad' ? 12000 : 5000);
}

/** Show an error. */
export function complain(error) {
  if (!(error instanceof ApiError)) throw error;
  say(error.message, 'bad');
}

/** Says in a place why it could not be read. */
export const unread = (place) => (error) => {
  if (!(error instanceof ApiError)) throw error;
  put(place, h('p.quiet', error.message));
};

/** Ask before something happens; whether the person agreed. */
export function ask(question, yes, more = null) {
  return new Promise((done) => {
    const dialog = h('dialog.ask', {'aria-label': question},
      h('p', question), more,
      h('div.buttons',
        h('button.plain', {onclick: () => dialog.close('')}, 'Back'),
        h('button.main', {autofocus: true, onclick: () => dialog.close('yes')}, yes)));
    dialog.addEventListener('close', () => { dialog.remove(); done(dialog.returnValue === 'yes'); });
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** Whether something can be changed now; if not, the page says why. */
export function isReady() {
  if (store.canAct) return true;
  say(store.state === 'live' ? 'The journal is damaged; nothing can be changed from here.' : 'Not connected; try again when the page is live.', 'bad');
  return false;
}

async function start(action, work) {
  if (!isReady()) return false;
  try {
    await work();
    say(action);
    return true;
  } catch (error) {
    complain(error);
    return false;
  }
}

function below(id) {
  const found = [id];
  for (let at = 0; at < found.length; at++) found.push(...(store.children.get(found[at]) ?? []));
  return found;
}

/** Cancel runs and everything below them, after a question that names the count. */
export async function cancelRuns(ids) {
  if (!ids.length || !isReady()) return false;
  const all = new Set(ids.flatMap(below));
  const live = [...all].filter((id) => store.rows.has(id) && (isLive(store.rows.get(id)) || store.rows.get(id).status === 'blocked'));
  if (!live.length) { say('Nothing to cancel: it has ended.'); return false; }
  const name = ids.length === 1 ? `“${nameOf(store.rows.get(ids[0]))}”` : counted(ids.length, 'run');
  const rest = live.length > ids.length ? ` This stops ${counted(live.length, 'run')}.` : '';
  if (!(await ask(`Cancel ${name}?${rest} Notes and transcripts are kept.`, `Cancel ${counted(live.length, 'run')}`))) return false;
  return start(`Cancelling ${counted(live.length, 'run')}.`, () => post('/api/cancel', {ids}));
}

export async function resumeRuns(ids, message = '') {
  for (const id of ids) await start(`Resuming ${nameOf(store.rows.get(id))}.`, () => post(`/api/runs/${id}/resume`, message ? {message} : {}));
}

export const againRun = (id, given) => start('Starting it again.', () => post(`/api/runs/${id}/again`, given));
export const pinRun = (id) => start('Pinned: pruning keeps it.', () => post(`/api/runs/${id}/pin`, {}));

/** Download a run: as a zip file, or as one HTML page. */
export async function exportRun(id, file = 'export.zip') {
  try {
    const url = URL.createObjectURL(await blob(`/api/runs/${id}/${file}`));
    const link = h('a', {href: url, download: `${id}.${file.split('.')[1]}`});
    link.click();
    setTimeout(() => URL.revokeObjectURL(url), 60000);
  } catch (error) {
    complain(error);
  }
}

/** Say how an action ended. */
export function jobEnded(job) {
  const name = nameOf(store.rows.get(job.run)) || job.run;
  const said = job.said ? ` ${job.said}` : '';
  if (job.state === 'failed') say(`${job.action} ${name}: exit code ${job.exit}.${said}`, 'bad');
  else if (job.action !== 'resume' && job.action !== 'again') say(`${job.action} ${name}: done.`);
}

/** A text field in a dialog; the text, or null. */
export function askText(question, yes, text = '') {
  const field = h('textarea', {rows: '6', 'aria-label': question});
  field.value = text;
  return ask(question, yes, field).then((is) => (is ? field.value : null));
}

// --- questions and approvals --------------------------------------------------------------------------------------------

const idOf = (one) => `${one.run} ${one.key}`;
export const addressOf = (one) => `/waiting#${encodeURIComponent(idOf(one))}`;

const leftText = (until) => `${duration(until - store.now())} left`;
const left = (one) => one.until && h('span.quiet', {'data-until': one.until}, leftText(one.until));

/** Show how long each question in an element is still open. */
export function countDown(element) {
  for (const one of element.querySelectorAll('[data-until]')) setText(one, leftText(one.dataset.until));
}

/** A question on one line, for lists. */
export function questionLine(one, isCurrent = false) {
  const risk = one.about?.risk;
  return h('a.question', {href: addressOf(one), 'aria-current': isCurrent && 'true'},
    h('span', {class: `risk ${risk ?? 'asks'}`}, one.answered ? 'answered' : risk ? `${risk} risk` : 'question'),
    h('span.who', [...one.path, one.label].join(' › ')),
    // The risk is shown beside it.
    h('span.what', risk ? one.question.replace(/ \(risk: \w+\)$/, '') : one.question),
    left(one));
}

export class WaitingView {
  constructor(go) {
    this.go = go;
    this.title = 'Waiting';
    this.at = 0;
    this.element = h('div.waiting-page');
    this.list = h('nav.waiting-list', {'aria-label': 'Questions'});
    this.card = h('section.card', {'aria-label': 'Question', tabindex: '-1'});
    this.element.append(h('h1', 'Waiting for you'), h('div.split', this.list, this.card));
    this.timer = setInterval(() => countDown(this.element), 1000);
    this.onhash = () => this.update('hash');
    addEventListener('hashchange', this.onhash);
  }

  placed() { this.update('board'); }

  dispose() {
    clearInterval(this.timer);
    removeEventListener('hashchange', this.onhash);
    this.approval?.dispose();
  }

  get wanted() { return decodeURIComponent(location.hash.slice(1)); }

  update(what) {
    if (what === 'state') this.approval?.look();
    if (what === 'doing' || what === 'rows') return;
    const all = store.questions();
    this.element.classList.toggle('none', !all.length && !this.approval?.isOver);
    const at = all.findIndex((each) => idOf(each) === this.wanted);
    if (at >= 0) this.at = at;
    // After a question that is gone comes the next one of the list.
    const one = all[Math.min(this.at, all.length - 1)];
    if (!this.approval?.isOver || (what === 'hash' && one)) this.show(one);
    put(this.list, all.length ? h('ul', all.map((each) => h('li', questionLine(each, idOf(each) === this.current)))) : h('p.quiet', 'Nothing waits for you.'));
    if (this.listed === this.current) return;
    this.listed = this.current;
    this.list.querySelector('[aria-current]')?.scrollIntoView({block: 'nearest'});
  }

  show(one) {
    const before = this.approval;
    if (before && !before.isSent && !store.waiting.has(idOf(before.one))) {
      before.isSent = true;
      say(`${before.one.label}: the question was answered elsewhere, or its run ended.`);
      // What is being typed does not become keys.
      if (document.activeElement === before.field) { before.isOver = before.answer.disabled = true; return; }
    }
    if (!one) {
      this.approval?.dispose();
      this.approval = null;
      this.current = this.shownKey = '';
      this.card.hidden = true;
      return;
    }
    const key = `${idOf(one)} ${one.digest} ${one.answered}`;
    if (this.shownKey === key) return;
    this.shownKey = key;
    const hadFocus = this.card.contains(document.activeElement);
    this.current = idOf(one);
    // The address names the question, so that no other one takes its place.
    if (this.wanted !== this.current) history.replaceState(null, '', addressOf(one));
    this.card.hidden = false;
    this.approval?.dispose();
    this.approval = new QuestionCard(one, () => this.update('waiting'));
    put(this.card, this.approval.element);
    this.approval.measure?.();
    if (hadFocus) this.card.focus({preventScroll: true});
  }

  step(by) {
    const all = store.questions();
    const at = all.findIndex((one) => idOf(one) === this.current);
    const next = all[at < 0 ? Math.min(this.at, all.length - 1) : (at + by + all.length) % all.length];
    if (next) { this.shownKey = ''; if (this.approval) this.approval.isOver = false; location.hash = addressOf(next).slice(9); }
  }

  keys() {
    return {
      j: () => this.step(1), k: () => this.step(-1), ']': () => this.step(1), '[': () => this.step(-1), w: () => this.step(1),
      a: () => this.approval?.focus('approve'), d: () => this.approval?.focus('deny'), r: () => this.approval?.focus('words'),
      Enter: () => this.current && !this.card.contains(document.activeElement) && this.go(`/run/${this.current.split(' ')[0]}`),
    };
  }
}

// What a person who comes back to a question finds as it was: the text of the answer, and what was seen.
const drafts = new Map();

/** One question in full, with its buttons. */
class QuestionCard {
  constructor(one, done) {
    this.one = one;
    this.done = done;
    this.isOver = false;
    const id = `${idOf(one)} ${one.digest}`;
    this.draft = drafts.get(id) ?? {text: '', seen: [[0, 0]]};
    drafts.set(id, this.draft);
    this.listening = new AbortController();
    this.result = h('div.result', {role: 'alert'});
    const about = one.about;
    this.element = h('div.question-card',
      h('header',
        h('p.quiet.crumbs', [...one.path, ''].join(' › '), h('a', {href: `/run/${one.run}`}, one.label)),
        h('h2', about?.title ?? 'A question'),
        h('p.facts',
          about && h('span', {class: `risk ${about.risk}`}, `${about.risk} risk`),
          about?.cost && h('span', `cost: ${about.cost}`),
          h('span.quiet', `asked ${clock(one.since)}`),
          left(one),
          about?.folder && h('span.quiet.code', exact(about.folder)))));
    this.isReadOnly = store.journal.state === 'damaged';
    if (this.isReadOnly) this.element.append(h('p', 'The journal is damaged, so nothing can be answered from here.'));
    if (one.answered && !this.isReadOnly) this.offerResume(this.element, 'It is answered');
    else if (about) this.approve(about);
    else this.words();
    this.element.append(this.result);
  }

  dispose() {
    this.watcher?.disconnect();
    this.listening.abort();
    clearTimeout(this.resting);
  }

  /** Say what happened to a question of a run without a process, and offer to resume it. */
  offerResume(place, what) {
    place.append(h('p', `${what}. No process works on this run.`), h('div.buttons', h('button.main', {onclick: () => resumeRuns([this.one.run])}, 'Resume it')));
  }

  // --- approvals ----------------------------------------------------------------------------------------------------

  approve(about) {
    this.text = h('div.exact', {tabindex: '0', role: 'region', 'aria-label': 'All of what will run'},
      about.parts.map((part) => h('section.part',
        h('h3', exact(part.name), sizeOf(part.text)),
        isDiff(part.name, part.text) ? diffLines(part.text, exact) : longText(part.text))));
    this.element.append(this.text);
    if (this.isReadOnly) return;
    // Where the text was in the last half second: time, beginning and end.
    this.moves = [];
    // The second click of a double click may meet the next question.
    const sends = (body) => (event) => { if (event.detail < 2) this.send(body); };
    this.progress = h('p.seen', {'aria-live': 'off'});
    this.yes = h('button.main', {disabled: true, onclick: sends({approve: true})}, 'Approve');
    this.always = about.can_always && h('button', {disabled: true, onclick: sends({approve: true, always: true})}, `Always ${about.tool} in this run`);
    this.no = h('button.deny', {onclick: sends({approve: false})}, 'Deny');
    this.unseen = h('button.plain', {onclick: () => this.showUnseen()}, 'Next unread');
    this.element.append(this.progress,
      h('div.buttons', this.no, this.unseen, this.always, this.yes),
      h('p.quiet.digest', `digest ${this.one.digest}`));
    const look = () => this.look();
    this.measure = () => requestAnimationFrame(look);
    this.watcher = new ResizeObserver(look);
    this.watcher.observe(this.text);
    for (const name of ['scroll', 'resize']) addEventListener(name, look, {capture: true, passive: true, signal: this.listening.signal});
  }

  /** Note what can be seen now, in the window too. What was scrolled past counts, but no more than two screens in half a second: a key like End moves in frames. */
  look() {
    // Without a connection nothing can be sent.
    for (const button of [this.no, this.answer]) if (button && !this.isOver) button.disabled = store.state !== 'live';
    if (!this.progress || !this.text.clientHeight) return;
    const {seen} = this.draft;
    const {scrollTop: top, clientHeight: height, scrollHeight: total} = this.text;
    const y = this.text.getBoundingClientRect().top;
    const from = (top + Math.max(0, FIXED - y)) / total;
    const to = (top + 2 + Math.min(height, innerHeight - y)) / total;
    const now = Date.now();
    const [, before, until] = this.moves.at(-1) ?? [0, from, to];
    this.moves.push([now, from, to]);
    while (this.moves[1]?.[0] <= now - 500) this.moves.shift();
    clearTimeout(this.resting);
    if (this.moves.some(([, begin]) => Math.abs(from - begin) * total > 2 * height)) this.resting = setTimeout(() => this.look(), 500);
    else if (to > from) seen.push([Math.min(from, before), Math.max(to, until)]);
    // Parts of the whole text, which has another height in another width.
    const joined = [];
    for (const [begin, end] of seen.sort((a, b) => a[0] - b[0])) {
      const before = joined.at(-1);
      if (before && begin <= before[1]) before[1] = Math.max(before[1], end); else joined.push([begin, end]);
    }
    this.draft.seen = joined;
    const sum = joined.reduce((all, [begin, end]) => all + Math.min(end, 1) - begin, 0);
    const isAll = joined[0][1] >= 1 - 1 / total;
    const part = Math.min(99, Math.floor(100 * sum));
    setText(this.progress, isAll ? 'You have seen all of it.' : `You have seen ${part} %. Scroll through the rest to approve.`);
    this.progress.classList.toggle('all', isAll);
    this.unseen.hidden = isAll;
    if (!this.isOver) for (const button of [this.yes, this.always]) if (button) button.disabled = !isAll || store.state !== 'live';
  }

  showUnseen() {
    const begin = this.draft.seen[0][1];
    this.moves = [[0, begin, begin]];
    this.text.scrollTop = begin * this.text.scrollHeight - 20;
    this.text.focus({preventScroll: true});
    this.text.scrollIntoView({block: 'end'});
  }

  // --- questions in words -------------------------------------------------------------------------------------------

  words() {
    this.element.append(h('div.exact.words', exact(this.one.question)));
    if (this.isReadOnly) return;
    this.field = h('textarea', {rows: '4', 'aria-label': 'Your answer', placeholder: 'Your answer', value: this.draft.text, oninput: () => { this.draft.text = this.field.value; }});
    this.answer = h('button.main', {onclick: () => this.send({words: this.field.value})}, this.one.needs_resume ? 'Answer and resume' : 'Answer');
    this.element.append(this.field, h('div.buttons', this.answer));
    this.look();
  }

  focus(what) {
    const target = what === 'approve' ? (this.yes?.disabled ? this.text : this.yes) : what === 'deny' ? this.no : this.field;
    target?.focus();
    if (what === 'approve' && this.yes?.disabled) say('Scroll through all of it first.');
  }

  async send(answer) {
    if (!isReady()) return;
    this.isOver = this.isSent = true;
    // A disabled button has no focus.
    this.element.parentNode.focus({preventScroll: true});
    const buttons = this.element.querySelectorAll('.buttons button');
    for (const button of buttons) button.disabled = true;
    try {
      const sent = await post(`/api/runs/${this.one.run}/answer`, {key: this.one.key, digest: this.one.digest, ...answer});
      const word = !sent.counted ? 'Another answer came first' : answer.approve === undefined ? 'Answered' : answer.approve ? 'Approved' : 'Denied';
      if (sent.taken) { put(this.result, h('p', `${word}.`)); say(`${word}: ${this.one.label}.`); this.isOver = false; } else this.offerResume(put(this.result), word);
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 409) { this.isOver = this.isSent = false; for (const button of buttons) button.disabled = false; this.look(); complain(error); return; }
      put(this.result, h('p.failed', error.message),
        error.content.now && h('p', 'It asks now: ', error.content.now.question));
    }
    this.done();
  }
}

function sizeOf(text) {
  const lines = text.split('\n').length;
  return lines > 1 || text.length > 200 ? h('span.quiet', ` ${lines.toLocaleString('en')} lines, ${text.length.toLocaleString('en')} characters`) : null;
}

/** A long text in pieces, of which a browser lays out only those near the screen. */
function longText(text) {
  const lines = text.split('\n');
  if (lines.length <= 400) return h('pre', exact(text));
  const pieces = [];
  for (let at = 0; at < lines.length; at += 200) pieces.push(lines.slice(at, at + 200).join('\n') + (at + 200 < lines.length ? '\n' : ''));
  return h('pre.pieces', pieces.map((piece) => h('span.piece', exact(piece))));
}
