// Diffs as lines with their signs.

import {get, ApiError} from './api.js';
import {h, put} from './dom.js';

const CHUNK = 200;

/** Whether a part of an approval is a diff. */
export const isDiff = (name, text) => name === 'diff' && (text.startsWith('@@') || text.startsWith('diff '));

const kindOf = (line) =>
  line.startsWith('@@') ? 'hunk' : /^(diff |index |--- |\+\+\+ |new file|deleted file)/.test(line) ? 'head'
    : line[0] === '+' ? 'added' : line[0] === '-' ? 'removed' : '';

/** The lines of a diff; `shown` makes the nodes of a text. */
export function diffLines(text, shown = (line) => [line]) {
  const lines = text.split('\n');
  const chunks = [];
  for (let at = 0; at < lines.length; at += CHUNK) {
    chunks.push(h('div', {class: 'piece'}, lines.slice(at, at + CHUNK).map((line) => h('div', {class: `line ${kindOf(line)}`}, shown(line), line ? '' : '\n'))));
  }
  return h('div', {class: 'diff'}, chunks);
}

/** The changed files of a run; each opens its patch. */
export async function diffPage(run) {
  const place = h('div', {class: 'diff-page'});
  let found;
  try {
    found = await get(`/api/runs/${run}/diff`);
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    put(place, h('p', {class: 'quiet'}, error.status === 400 ? 'This run has no worktree or branch of its own, so there is no diff.' : error.message));
    return place;
  }
  put(place, h('p', {class: 'quiet'}, `Branch ${found.branch}, from ${found.base.slice(0, 12)}. ${found.files.length} changed files.`));
  for (const file of found.files) place.append(fileDiff(run, file, found.files.length <= 3));
  if (found.more) place.append(h('p', {class: 'quiet'}, `… ${found.more} more files`));
  return place;
}

function fileDiff(run, file, isOpen) {
  const body = h('div', {});
  const counts = file.added === null ? h('span', {class: 'quiet'}, 'binary')
    : [h('span', {class: 'plus'}, `+${file.added}`), ' ', h('span', {class: 'minus'}, `−${file.removed}`)];
  const details = h('details', {class: 'file'}, h('summary', {}, h('code', {}, file.path), ' ', counts), body);
  const load = async () => {
    if (body.hasChildNodes()) return;
    if (file.is_withheld) { put(body, h('p', {class: 'quiet'}, 'This file usually holds secrets and is not shown.')); return; }
    put(body, h('p', {class: 'quiet'}, 'Reading…'));
    const {patch, is_cut: isCut} = await get(`/api/runs/${run}/diff?path=${encodeURIComponent(file.path)}`);
    put(body, diffLines(patch), isCut && h('p', {class: 'quiet'}, 'The rest is not shown.'));
  };
  details.addEventListener('toggle', () => { if (details.open) load(); });
  details.open = isOpen;
  return details;
}
