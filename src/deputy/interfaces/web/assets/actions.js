// What a person does: answer, cancel, resume, start again, pin, export; and what the page says about it.

import {ApiError, blob, post} from './api.js';
import {counted, h, put} from './dom.js';
import {nameOf, store} from './store.js';

let region;
let toasts;
let lastSaid = 0;
let waitingSaid = null;

/** The places for messages: one live region for screen readers, and notes that vanish. */
export function messagePlaces() {
  region = h('div', {class: 'sr', role: 'status', 'aria-live': 'polite'});
  toasts = h('div', {class: 'toasts'});
  return [region, toasts];
}

/** Tell screen readers, at most once in five seconds; the latest message wins. */
export function announce(text) {
  const wait = lastSaid + 5000 - Date.now();
  waitingSaid = text;
  setTimeout(() => {
    if (waitingSaid === null) return;
    lastSaid = Date.now();
    region.textContent = waitingSaid;
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

/** Show an error with its remedy. */
export function complain(error) {
  if (!(error instanceof ApiError)) throw error;
  say([error.message, error.remedy].filter(Boolean).join(' '), 'bad');
}

/** Ask before something happens; whether the person agreed. */
export function ask(question, yes, more = null) {
  return new Promise((done) => {
    const dialog = h('dialog', {class: 'ask', 'aria-label': question},
      h('p', {}, question), more,
      h('div', {class: 'buttons'},
        h('button', {class: 'plain', onclick: () => dialog.close('')}, 'Back'),
        h('button', {class: 'main', autofocus: true, onclick: () => dialog.close('yes')}, yes)));
    dialog.addEventListener('close', () => { dialog.remove(); done(dialog.returnValue === 'yes'); });
    document.body.append(dialog);
    dialog.showModal();
  });
}

async function start(action, work) {
  if (store.state !== 'live') { say('Not connected; try again when the page is live.', 'bad'); return false; }
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
  const all = new Set(ids.flatMap(below));
  const live = [...all].filter((id) => ['running', 'waiting', 'interrupted', 'blocked'].includes(store.rows.get(id)?.status));
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

export {put};
