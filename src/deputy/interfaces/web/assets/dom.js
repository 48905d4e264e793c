// Elements, and how numbers, times, Markdown and diffs are shown. Text becomes text nodes only.

/** The height of the bar at the top. */
export const FIXED = 48;
const SVG = 'http://www.w3.org/2000/svg';
const VECTOR = new Set(['svg', 'g', 'rect', 'title']);

// Control, format and ignorable characters, blanks and joiners; line ends and tabs are visible.
const HIDDEN = String.raw`(?![\n\t])[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{DI}\u2800\u2d7f\u{1107f}\u{13441}\u{13442}\u{16fe4}\u{1d159}]`;
const UNSEEN = new RegExp(HIDDEN, 'gu');
// The same, and a mark of another script on an ASCII letter, which few fonts show.
const DOUBTFUL = new RegExp(String.raw`${HIDDEN}|(?<![^\x00-\x7f\p{sc=Zinh}\p{Cf}])(?!\p{sc=Zinh})[\p{Mn}\p{Me}]+`, 'gu');

/** A text without invisible characters. */
export function plain(text) {
  const shown = String(text ?? '');
  return /^[ -~]*$/.test(shown) ? shown : shown.replace(UNSEEN, '');
}

/** An element: h('p.quiet', {onclick: act}, 'text', child); the attributes may be left out. */
export function h(name, ...parts) {
  const [tag, ...classes] = name.split('.');
  const element = VECTOR.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
  if (classes.length) element.setAttribute('class', classes.join(' '));
  if (parts[0]?.constructor === Object) attributes(element, parts.shift());
  return add(element, parts);
}

function attributes(element, given) {
  for (const [name, value] of Object.entries(given)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (name === 'style') for (const [key, one] of Object.entries(value)) element.style.setProperty(key, one);
    else if (name === 'value') element.value = value;
    else element.setAttribute(name, value === true ? '' : plain(value));
  }
}

/** Append children; strings become text without invisible characters. */
export function add(element, children) {
  for (const child of [children].flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(plain(child)));
  }
  return element;
}

/** Replace the content of an element. */
export function put(element, ...children) {
  element.replaceChildren();
  return add(element, children);
}

/** Set the text of an element if it is another one. */
export function setText(element, text) {
  const shown = plain(text);
  if (element.textContent !== shown) element.textContent = shown;
}

/** A text with every invisible character shown as its code, for approvals. */
export function exact(text) {
  const nodes = [];
  let at = 0;
  for (const found of text.matchAll(DOUBTFUL)) {
    if (found.index > at) nodes.push(document.createTextNode(text.slice(at, found.index)));
    nodes.push(h('mark.unseen', [...found[0]].map((one) => `U+${one.codePointAt(0).toString(16).toUpperCase().padStart(4, '0')}`)));
    at = found.index + found[0].length;
  }
  if (at < text.length) nodes.push(document.createTextNode(text.slice(at)));
  return nodes;
}

// --- numbers and times ----------------------------------------------------------------------------------------------

/** A count: 950, 12k, 3.4M. */
export function count(number) {
  if (number === null || number === undefined) return '?';
  if (number < 1000) return String(number);
  if (number < 1e6) return number < 1e4 ? `${(number / 1e3).toFixed(1)}k` : `${Math.round(number / 1e3)}k`;
  return `${(number / 1e6).toFixed(number < 1e7 ? 1 : 0)}M`;
}

/** Dollars; unknown is "?", never $0. */
export function money(cost, requests = 1) {
  if (!requests) return '–';
  if (cost === null || cost === undefined) return '?';
  if (cost === 0) return 'free';
  if (cost < 0.0001) return '<$0.0001';
  return cost < 0.01 ? `$${cost.toFixed(4)}` : `$${cost.toFixed(2).replace(/\B(?=(\d{3})+$)/g, ',')}`;
}

/** A duration: 8s, 3m 04s, 1h 12m, 3d 4h. */
export function duration(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 60) return `${whole}s`;
  if (whole < 3600) return `${Math.floor(whole / 60)}m ${String(whole % 60).padStart(2, '0')}s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)}h ${String(Math.floor((whole % 3600) / 60)).padStart(2, '0')}m`;
  return `${Math.floor(whole / 86400)}d ${Math.floor((whole % 86400) / 3600)}h`;
}

/** A duration of something short: 0.4s, 12s. */
export const elapsed = (seconds) => (seconds < 10 ? `${Math.max(0, seconds).toFixed(1)}s` : duration(seconds));

/** Tokens; `~` marks an estimate. */
export const tokens = (number, isEstimated) => (isEstimated && number ? '~' : '') + count(number);

/** Tokens and cost. */
export const usage = (used) =>
  `${tokens(used.input, used.estimated)} in, ${tokens(used.output, used.estimated)} out, ${money(used.cost, used.requests)}`;

/** A time of day, with the date if it was not today. */
export function clock(at) {
  if (!at) return '–';
  const date = new Date(at * 1000);
  const time = [date.getHours(), date.getMinutes(), date.getSeconds()].map((part) => String(part).padStart(2, '0')).join(':');
  return date.toDateString() === new Date().toDateString() ? time : `${date.toISOString().slice(0, 10)} ${time}`;
}

/** A noun with its count: 1 run, 2 runs. */
export const counted = (number, noun) => `${number.toLocaleString('en')} ${noun}${number === 1 ? '' : 's'}`;

/** The mark of a status. */
export const MARKS = {
  running: '●', queued: '○', waiting: '◆', blocked: '◆', completed: '✓', partial: '◐', failed: '✕', cancelled: '⊘', rejected: '⊘',
  interrupted: '⚠',
};

/** A status with its mark. */
export const statusMark = (status) =>
  h(`span.status.${status}`, h('span.mark', {'aria-hidden': 'true'}, MARKS[status] ?? '·'), ` ${status}`);

/** A bar that is filled to a part; labelled for screen readers. */
export function meter(part, label) {
  const shown = Math.max(0, Math.min(1, part));
  const level = shown > 0.9 ? 'bad' : shown > 0.7 ? 'warning' : '';
  return h('span', {class: `meter ${level}`, role: 'img', 'aria-label': label, title: label},
    h('span', {style: {width: `${(shown * 100).toFixed(1)}%`}}));
}

// --- Markdown: no HTML, no images, links to http(s) only ------------------------------------------------------------

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
function inline(text) {
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
