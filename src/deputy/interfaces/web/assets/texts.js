// Texts as DOM nodes: Markdown (no HTML, no images, links to http(s) only) and diffs.

import {ApiError, get} from './store.js';
import {clock, h, put} from './dom.js';

const MOST = 400000;
const FENCE = /^ {0,3}(`{3,}|~{3,})/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])\s+/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*?)\s*#*$/;
const RULE = /^ {0,3}([-*_])( *\1){2,} *$/;

/** The nodes of a Markdown text. */
export function markdown(text) {
  const lines = text.slice(0, MOST).split('\n');
  const nodes = blocks(lines);
  if (text.length > MOST) nodes.push(h('p.quiet', `… ${text.length - MOST} more characters`));
  return h('div.markdown', nodes);
}

function blocks(lines, depth = 0) {
  const nodes = [];
  let at = 0;
  while (at < lines.length) {
    const line = lines[at];
    const fence = FENCE.exec(line);
    const heading = HEADING.exec(line);
    if (!line.trim()) at++;
    else if (fence) {
      const body = [];
      for (at++; at < lines.length && !lines[at].trimStart().startsWith(fence[1]); at++) body.push(lines[at]);
      at++;
      nodes.push(h('pre', h('code', body.join('\n'))));
    } else if (heading) {
      nodes.push(h(`h${Math.min(6, Math.max(3, heading[1].length + 1))}`, inline(heading[2])));
      at++;
    } else if (RULE.test(line)) {
      nodes.push(h('hr'));
      at++;
    } else if (line.startsWith('>') && depth < 5) {
      const body = [];
      for (; at < lines.length && lines[at].startsWith('>'); at++) body.push(lines[at].replace(/^> ?/, ''));
      nodes.push(h('blockquote', blocks(body, depth + 1)));
    } else if (line.includes('|') && /^[\s|:-]+$/.test(lines[at + 1] ?? '') && (lines[at + 1] ?? '').includes('-')) {
      const rows = [cells(line)];
      for (at += 2; at < lines.length && lines[at].includes('|'); at++) rows.push(cells(lines[at]));
      nodes.push(table(rows));
    } else if (ITEM.test(line) && depth < 8) {
      at = list(lines, at, nodes, depth);
    } else {
      const body = [];
      for (; at < lines.length && lines[at].trim() && !FENCE.test(lines[at]) && !HEADING.test(lines[at]) && !ITEM.test(lines[at]); at++) body.push(lines[at]);
      if (!body.length) body.push(lines[at++]);
      nodes.push(h('p', inline(body.join('\n'))));
    }
  }
  return nodes;
}

function list(lines, at, nodes, depth) {
  const first = ITEM.exec(lines[at]);
  const items = [];
  while (at < lines.length) {
    const item = ITEM.exec(lines[at]);
    if (!item || item[1].length > first[1].length + 1) break;
    const body = [lines[at].slice(item[0].length)];
    for (at++; at < lines.length; at++) {
      const indent = /^ */.exec(lines[at])[0].length;
      if (!lines[at].trim() ? !/^\s/.test(lines[at + 1] ?? '') : indent <= item[1].length) break;
      body.push(lines[at].slice(Math.min(indent, item[0].length)));
    }
    items.push(h('li', body.length === 1 ? inline(body[0]) : blocks(body, depth + 1)));
    if (at < lines.length && !lines[at].trim() && ITEM.test(lines[at + 1] ?? '')) at++;
  }
  nodes.push(h(/\d/.test(first[2]) ? 'ol' : 'ul', items));
  return at;
}

const cells = (line) => line.trim().replace(/^\||\|$/g, '').split('|').map((cell) => cell.trim());

function table(rows) {
  const [head, ...body] = rows;
  return h('div.scroll', h('table',
    h('thead', h('tr', head.map((cell) => h('th', inline(cell))))),
    h('tbody', body.map((row) => h('tr', row.map((cell) => h('td', inline(cell))))))));
}

/** Inline Markdown: code, bold, italics and links. A marker without its end is looked for once. */
export function inline(text) {
  const nodes = [];
  const missing = new Set();
  let from = 0;
  let at = 0;
  const flush = (end) => { if (end > from) nodes.push(text.slice(from, end)); };
  const closed = (marker, begin) => {
    if (missing.has(marker)) return -1;
    const end = text.indexOf(marker, begin);
    if (end < 0) missing.add(marker);
    return end;
  };
  while (at < text.length) {
    const letter = text[at];
    const pair = text.startsWith('**', at) ? '**' : letter === '`' || letter === '*' ? letter : '';
    if (pair) {
      const end = closed(pair, at + pair.length);
      const inner = end < 0 ? '' : text.slice(at + pair.length, end);
      if (inner && (pair === '`' || (inner.length < 2000 && !/^\s|\s$/.test(inner)))) {
        flush(at);
        nodes.push(pair === '`' ? h('code', inner) : h(pair === '**' ? 'strong' : 'em', inner));
        at = from = end + pair.length;
        continue;
      }
      at += pair.length;
      continue;
    }
    if (letter === '[') {
      const found = /^\[([^\][\n]{1,500})\]\((https?:\/\/[^\s()<>]{1,2000})\)/.exec(text.slice(at, at + 2600));
      if (found) {
        flush(at);
        nodes.push(link(found[2], found[1]));
        at = from = at + found[0].length;
        continue;
      }
    }
    if (letter === 'h' && text.startsWith('http', at) && !/\w/.test(text[at - 1] ?? ' ')) {
      const found = /^https?:\/\/[^\s()<>"'`*]{1,2000}[^\s()<>"'`*.,;:!?]/.exec(text.slice(at, at + 2100));
      if (found) {
        flush(at);
        nodes.push(link(found[0], found[0]));
        at = from = at + found[0].length;
        continue;
      }
    }
    at++;
  }
  flush(text.length);
  return nodes;
}

const link = (url, text) => h('a', {href: url, rel: 'noopener noreferrer nofollow', target: '_blank'}, text);

/** Records on one line each, with links to them. */
export const lastRecords = (run, heads) => h('ul.last', heads.map(([seq, at, kind, , line]) => h('li',
  h('a', {href: `/run/${run}/transcript#${seq}`}, clock(at)), ' ', h('span.quiet', kind.replaceAll('_', ' ')), ' ', line)));

// --- diffs -------------------------------------------------------------------------------------------------------------

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
    chunks.push(h('div.piece', lines.slice(at, at + CHUNK).map((line) => h('div', {class: `line ${kindOf(line)}`}, shown(line), line ? '' : '\n'))));
  }
  return h('div.diff', chunks);
}

/** The changed files of a run; each opens its patch. */
export async function diffPage(run) {
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
    const {patch, is_cut: isCut} = await get(`/api/runs/${run}/diff?path=${encodeURIComponent(file.path)}`);
    put(body, diffLines(patch), isCut && h('p.quiet', 'The rest is not shown.'));
  };
  details.addEventListener('toggle', () => { if (details.open) load(); });
  details.open = isOpen;
  return details;
}
