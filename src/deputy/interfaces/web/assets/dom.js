// Elements, and how numbers, times and texts are shown. Text becomes text nodes only.

const SVG = 'http://www.w3.org/2000/svg';
const VECTOR = new Set(['svg', 'g', 'rect', 'line', 'path', 'text']);

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

/** A title of an SVG element, which browsers show as a tooltip. */
export const svgTitle = (text) => add(document.createElementNS(SVG, 'title'), text);

function attributes(element, given) {
  for (const [name, value] of Object.entries(given)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (name === 'style') for (const [key, one] of Object.entries(value)) element.style.setProperty(key, one);
    else if (name === 'value') element.value = value;
    else element.setAttribute(name, value === true ? '' : value);
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
export function meter(part, label, kind = '') {
  const shown = Math.max(0, Math.min(1, part));
  const level = kind || (shown > 0.9 ? 'bad' : shown > 0.7 ? 'warning' : '');
  return h('span', {class: `meter ${level}`, role: 'img', 'aria-label': label, title: label},
    h('span', {style: {width: `${(shown * 100).toFixed(1)}%`}}));
}
