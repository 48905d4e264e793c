// Cost and tokens by model, agent and day.

import {ApiError, get} from './api.js';
import {count, duration, h, money, put} from './dom.js';

export class UsageView {
  constructor(go) {
    this.go = go;
    this.title = 'Usage';
    this.body = h('div', {class: 'usage'}, h('p', {class: 'quiet'}, 'Reading…'));
    this.element = h('div', {class: 'usage-page'}, h('h1', {}, 'Usage'), this.body);
    this.load();
  }

  dispose() {}

  async load() {
    let found;
    try {
      found = await get('/api/usage');
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      put(this.body, h('p', {class: 'quiet'}, error.status === 503 ? 'No run has ended yet.' : error.message));
      return;
    }
    const total = found.day[1];
    if (!total) { put(this.body, h('p', {class: 'quiet'}, 'No run has ended yet.')); return; }
    put(this.body,
      h('ul', {class: 'stats'}, [[total.count, 'runs'], [count(total.input), 'tokens in'], [count(total.output), 'tokens out'], [costText(total), 'cost'], [duration(total.median_seconds), 'median time']]
        .map(([value, name]) => h('li', {class: 'stat'}, h('strong', {}, value), ' ', h('span', {}, name)))),
      this.plot('By day', [...found.day[0]].reverse()), this.plot('By model', found.model[0]), this.plot('By agent', found.agent[0]), this.plot('By command', found.command[0]),
      h('p', {class: 'quiet'}, 'Runs that have ended, the latest 10,000; each with its own use, without that of its subagents.'));
  }

  plot(title, rows) {
    const shown = rows.slice(-40);
    if (!shown.length) return null;
    const byCost = shown.some((row) => row.cost);
    const size = (row) => (byCost ? row.cost ?? 0 : row.input + row.output);
    const most = Math.max(...shown.map(size), 1e-9);
    return h('section', {}, h('h2', {}, title),
      h('div', {class: 'scroll'}, h('table', {class: 'bars'},
        h('thead', {}, h('tr', {}, h('th', {}, 'name'), h('th', {}, byCost ? 'cost' : 'tokens'), h('th', {class: 'number'}, 'cost'), h('th', {class: 'number'}, 'in'), h('th', {class: 'number'}, 'out'), h('th', {class: 'number'}, 'runs'))),
        h('tbody', {}, shown.map((row) => h('tr', {},
          h('th', {scope: 'row'}, row.name),
          h('td', {class: 'bar-cell'}, h('span', {class: 'bar', style: {width: `${Math.max(0.5, (100 * size(row)) / most)}%`}})),
          h('td', {class: 'number'}, costText(row)), h('td', {class: 'number'}, count(row.input)), h('td', {class: 'number'}, count(row.output)), h('td', {class: 'number'}, row.count)))))));
  }

  update() {}

  key(key) {
    if (key === 'Escape') { this.go('/'); return true; }
    return false;
  }
}

/** Known costs, and that some are unknown. */
function costText(row) {
  if (row.cost === null) return '?';
  return row.unknown_costs ? `${money(row.cost)} + ?` : money(row.cost, row.input + row.output);
}
