// The page: shell, routes, keys, connection, notifications.

import {addressOf, announce, ask, jobEnded, messagePlaces, WaitingView} from './actions.js';
import {BoardView} from './board.js';
import {clock, counted, h, plain, put, setText} from './dom.js';
import {RunView} from './run.js';
import {ApiError, dropToken, hasToken, RETRY_MS, setToken, store, takeToken} from './store.js';
import {TimelineView, UsageView} from './plots.js';

const KEYS = [
  ['j k', 'move down, up'], ['h l', 'fold, open'], ['Enter', 'open'], ['Space', 'peek'], ['w', 'next that waits'],
  ['a', 'to Approve; Enter confirms'], ['d', 'to Deny; Enter confirms'], ['r', 'answer or resume'], ['x', 'select'],
  ['c', 'cancel, after a question'], ['/', 'filter'], ['f', 'follow the end'], ['[ ]', 'sibling'], ['e', 'export'],
  ['t', 'timeline'], ['+ −', 'zoom the timeline'], ['1 … 5', 'parts of a run'], ['?', 'this help'], ['Esc', 'back'],
];
const ARROWS = {ArrowDown: 'j', ArrowUp: 'k', ArrowLeft: 'h', ArrowRight: 'l'};

let view = null;
// Where the board was left: a filter stays.
let board = '/';
let asked = null;

const main = h('main', {id: 'main', tabindex: '-1'});
const connection = h('span.connection');
const badge = h('span.badge', {hidden: true});
const bell = h('button.plain.bell', {title: 'Notify me of questions', onclick: () => allowNotifications()}, 'Notify me');
const nav = h('nav', {'aria-label': 'Pages'},
  h('a', {href: '/'}, 'Board'), h('a', {href: '/waiting'}, 'Waiting', badge), h('a', {href: '/usage'}, 'Usage'));
const top = h('header.top',
  h('a.brand', {href: '/', 'aria-label': 'Deputy, board'}, h('img', {src: '/assets/favicon.svg', alt: '', width: '22', height: '22'}), h('span', 'Deputy')),
  nav, h('span.space'), bell, connection, h('button.plain.help', {'aria-label': 'Keys', title: 'Keys (?)', onclick: () => help()}, '?'));
const offline = h('aside.offline', {'aria-label': 'Connection', hidden: true});

// --- routes -----------------------------------------------------------------------------------------------------------

function make() {
  const parts = location.pathname.split('/').filter(Boolean).map(decodeURIComponent);
  if (parts[0] === 'run' && parts[1]) return new RunView(go, parts[1], parts[2], location.hash);
  if (parts[0] === 'tree' && parts[1]) return new TimelineView(go, parts[1]);
  if (parts[0] === 'waiting') return new WaitingView(go);
  if (parts[0] === 'usage') return new UsageView(go);
  return new BoardView(go);
}

function show() {
  if (view instanceof BoardView) board = view.address;
  view?.dispose();
  scrollTo(0, 0);
  // The view is in the document before it draws.
  view = make();
  put(main, view.element);
  view.placed?.();
  for (const link of nav.querySelectorAll('a')) {
    if (link.pathname === location.pathname) link.setAttribute('aria-current', 'page'); else link.removeAttribute('aria-current');
  }
  titled();
  view.list?.soon?.();
  hold();
}

/** The focus does not fall out of the page with what was removed. */
function hold() { if (document.activeElement === document.body) main.focus({preventScroll: true}); }

/** Go to another page of this server. */
function go(path) {
  const url = new URL(path, location.href);
  if (url.origin !== location.origin) return;
  history.pushState(null, '', url);
  show();
}

function titled() {
  const number = store.waiting.size;
  const before = number ? `(${number}) ` : '';
  document.title = plain(`${before}${view?.title ?? 'Deputy'} · Deputy`);
  badge.hidden = !number;
  setText(badge, number);
}

addEventListener('popstate', () => {
  // An address with a token, pasted into a tab that has the page open.
  if (takeToken()) location.reload(); else if (view) show();
});
document.addEventListener('click', (event) => {
  const link = event.target.closest?.('a[href]');
  if (!link || link.target || link.hasAttribute('download') || link.origin !== location.origin || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
  event.preventDefault();
  if (link.pathname === location.pathname && link.search === location.search && link.hash) location.hash = link.hash;
  else go(link.href);
});

// --- keys -------------------------------------------------------------------------------------------------------------

document.addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || document.querySelector('dialog[open]')) return;
  const target = event.target;
  if (target.matches('input, textarea, select')) {
    if (event.key !== 'Escape') return;
    // A browser would empty the field.
    event.preventDefault();
    (view?.tree ?? view?.card ?? main).focus({preventScroll: true});
    return;
  }
  // Enter and Space belong to the button or link that has the focus.
  if ((event.key === 'Enter' || event.key === ' ') && target.matches('button, a, summary')) return;
  if (/^(Arrow|Page|Home|End)/.test(event.key) && !target.matches('[role=tree]')) return;
  if (event.key === '?') help();
  else if (event.key === 'w' && !(view instanceof WaitingView)) nextWaiting();
  else {
    const act = {Escape: () => view && go(board), ...view?.keys()}[ARROWS[event.key] ?? event.key];
    if (!act) return;
    act();
  }
  event.preventDefault();
});

function nextWaiting() {
  const [first] = store.questions();
  if (first) go(addressOf(first)); else announce('Nothing waits for you.');
}

function help() {
  const dialog = h('dialog.keys', {'aria-label': 'Keys'},
    h('h2', {tabindex: '-1', autofocus: true}, 'Keys'), h('dl', KEYS.map(([keys, text]) => [h('dt', keys.split(' ').map((key) => [h('kbd', key), ' '])), h('dd', text)])),
    h('div.buttons', h('button.main', {onclick: () => dialog.close()}, 'Close')));
  dialog.addEventListener('close', () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

// --- connection and news ------------------------------------------------------------------------------------------------

function connected() {
  setText(connection, store.state);
  const isAway = {offline: true, live: false}[store.state] ?? wasAway;
  if (isAway !== wasAway) announce(store.state);
  wasAway = isAway;
  connection.className = `connection ${store.state}`;
  offline.hidden = store.state !== 'offline';
  if (store.state === 'offline') setText(offline, `Offline: as of ${clock(store.asOf)}. Connecting again; actions are disabled.`);
  if (store.state === 'token') signIn('The server does not accept this token.');
}

let wasAway = false;
let planned = new Set();
store.addEventListener('change', ({detail}) => {
  if (detail === 'state') connected();
  if (detail === 'waiting' || detail === 'board') notifyNew();
  if (!view) return;
  if (!planned.size) {
    const current = view;
    requestAnimationFrame(() => { const all = planned; planned = new Set(); if (view !== current) return; for (const what of all) view.update(what); titled(); hold(); });
  }
  planned.add(detail);
});
store.addEventListener('job', ({detail}) => { if (detail.state !== 'running') jobEnded(detail); });

/** One browser notification for each new question, if the person wants them. */
function notifyNew() {
  const now = new Set(store.waiting.keys());
  const fresh = asked && [...store.waiting.values()].filter((one) => !asked.has(`${one.run} ${one.key}`));
  asked = now;
  bell.hidden = !('Notification' in window) || Notification.permission !== 'default';
  if (!fresh?.length) return;
  announce(`${counted(fresh.length, 'question')} ${fresh.length === 1 ? 'waits' : 'wait'} for you.`);
  if (!('Notification' in window) || Notification.permission !== 'granted' || !store.stream.isLeader) return;
  for (const one of fresh.slice(0, 5)) {
    const note = new Notification(plain(`${one.label} asks`), {body: plain(one.question.slice(0, 200)), tag: `${one.run} ${one.key}`});
    note.onclick = () => { focus(); go(addressOf(one)); };
  }
}

async function allowNotifications() {
  if (await ask('Show a notification of the browser for each new question?', 'Allow')) await Notification.requestPermission();
  bell.hidden = Notification.permission !== 'default';
}

// --- start --------------------------------------------------------------------------------------------------------------

function signIn(reason = '') {
  view?.dispose();
  view = null;
  setText(connection, 'signed out');
  connection.className = 'connection token';
  const field = h('input', {type: 'password', autocomplete: 'off', 'aria-label': 'Token', required: true});
  put(main, h('form.sign-in', {onsubmit: (event) => { event.preventDefault(); setToken(field.value.trim()); location.reload(); }},
    h('h1', 'Token needed'), reason && h('p.failed', reason),
    h('p', 'Open the address that ', h('code', 'deputy web'), ' prints; it carries the token. Or paste the token here. It is in the file ',
      h('code', 'web-token'), ' in Deputy’s home, usually ', h('code', '~/.deputy'), '.'),
    field, h('button.main', 'Open')));
  field.focus();
}

async function begin() {
  document.body.append(h('a.skip', {href: '#main'}, 'To the content'), top, offline, main, ...messagePlaces());
  connected();
  if (!hasToken()) { signIn(); return; }
  put(main, h('h1.sr', 'Deputy'), h('p.quiet', 'Connecting…'));
  for (;;) {
    try {
      await store.load();
      break;
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if (error.status === 401) { dropToken(); signIn('The server does not accept this token.'); return; }
      if (error.status === 429) { signIn(error.message); return; }
      store.connected('offline');
      await new Promise((done) => setTimeout(done, RETRY_MS));
    }
  }
  show();
}

takeToken();
begin();
