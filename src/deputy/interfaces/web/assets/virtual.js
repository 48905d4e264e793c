// A long list of which only the visible rows are in the document. The page itself scrolls.

const MARGIN = 6;

/** Rows of one height: `make(item)` returns {element, update(item)}, `keyOf(item)` names it. */
export class VirtualList {
  constructor(element, {height, make, keyOf}) {
    this.element = element;
    this.height = height;
    this.make = make;
    this.keyOf = keyOf;
    this.items = [];
    this.shown = new Map();
    element.classList.add('virtual');
    this.onscroll = () => this.soon();
    addEventListener('scroll', this.onscroll, {passive: true});
    addEventListener('resize', this.onscroll, {passive: true});
  }

  dispose() {
    removeEventListener('scroll', this.onscroll);
    removeEventListener('resize', this.onscroll);
    this.isGone = true;
  }

  /** Show other items. */
  set(items) {
    this.items = items;
    this.soon();
  }

  /** Draw before the next frame. */
  soon() {
    if (this.isPlanned) return;
    this.isPlanned = true;
    requestAnimationFrame(() => { this.isPlanned = false; if (!this.isGone) this.draw(); });
  }

  rowHeight() { return typeof this.height === 'function' ? this.height() : this.height; }

  draw() {
    const height = this.rowHeight();
    const top = -this.element.getBoundingClientRect().top;
    const first = Math.max(0, Math.floor(top / height) - MARGIN);
    const last = Math.min(this.items.length, Math.ceil((top + innerHeight) / height) + MARGIN);
    const total = `${this.items.length * height}px`;
    if (this.element.style.height !== total) this.element.style.height = total;
    const kept = new Set();
    for (let at = first; at < last; at++) {
      const item = this.items[at];
      const key = this.keyOf(item);
      kept.add(key);
      let row = this.shown.get(key);
      if (!row) {
        row = this.make(item);
        this.shown.set(key, row);
        this.element.append(row.element);
      }
      row.update(item, at);
      const place = `translateY(${at * height}px)`;
      if (row.element.style.transform !== place) row.element.style.transform = place;
    }
    for (const [key, row] of this.shown) {
      if (!kept.has(key)) { row.element.remove(); this.shown.delete(key); }
    }
  }

  /** Scroll until an item can be seen. */
  reveal(at, room = 110) {
    const height = this.rowHeight();
    const top = this.element.getBoundingClientRect().top + at * height;
    if (top < room) scrollBy(0, top - room);
    else if (top + height > innerHeight - 60) scrollBy(0, top + height - innerHeight + 60);
    this.draw();
  }
}
