// Making elements. Text only ever becomes text nodes: group ids and client ids are whatever a client sends.

const PROPERTIES = new Set(['value', 'checked', 'disabled', 'hidden', 'selected', 'open', 'readOnly']);

/** An element: `h('a', {href: '#/', class: 'x', onclick: f}, 'text', child, …)`; null and false are left out. */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined) continue;
    if (typeof value === 'function') element.addEventListener(name.slice(2), value);
    else if (PROPERTIES.has(name)) element[name] = value;
    else if (value === false) continue;
    else element.setAttribute(name, value === true ? '' : String(value));
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) append(element, child);
    else element.append(child instanceof Node ? child : String(child));
  }
}

/** Replaces what is in `element`. */
export function fill(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

/** Sets the text only where it differs, so that nothing is announced or redrawn for nothing. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// Controls, invisible characters, and those that turn the direction of writing: they could make one name look like another.
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;

/** A text from outside with every character to be seen. */
export function visible(text) {
  return String(text).replace(UNSEEN, (c) => `\\u{${c.codePointAt(0).toString(16)}}`);
}

/** A name from outside: shown as it is, apart from the writing around it, whole in its tooltip. */
export function name(text, extra = '') {
  let shown = visible(text);
  if (shown === '') return h('em', { class: 'faint' }, '(empty)');
  if (shown.trim() !== shown) shown = `“${shown}”`;
  return h('bdi', { class: `name ${extra}`.trim(), title: shown }, shown);
}

/** Text for screen readers only. */
export function unseen(text) {
  return h('span', { class: 'unseen' }, text);
}

/** Tells a screen reader, politely. */
export function say(text) {
  const region = document.getElementById('say');
  if (region) region.textContent = text;
}

let ids = 0;

/** A fresh id for labels. */
export function freshId(prefix = 'id') {
  ids += 1;
  return `${prefix}-${ids}`;
}

/** A control with its label in front, and a hint that is read with it. */
export function field(label, control, hint) {
  control.id ||= freshId('field');
  const note = hint ? h('p', { class: 'hint', id: `${control.id}-hint` }, hint) : null;
  if (note) control.setAttribute('aria-describedby', note.id);
  return h('div', { class: 'field' }, h('label', { for: control.id }, label), control, note);
}

/** A radio button or check box with its label behind. */
export function choice(type, group, label, attributes = {}) {
  const input = h('input', { type, name: group, ...attributes });
  return { input, node: h('label', { class: 'choice' }, input, h('span', {}, label)) };
}

/** A button. */
export function button(label, onclick, attributes = {}) {
  return h('button', { type: 'button', onclick, ...attributes }, label);
}

/** A table in a region that scrolls sideways by keyboard too. `columns`: {label, class?}; `rows`: arrays of cells, the
 * first being the row's header. */
export function table(caption, columns, rows, attributes = {}) {
  const head = columns.map((column) => h('th', { scope: 'col', class: column.class }, column.label));
  const body = rows.map((cells) =>
    h('tr', {}, cells.map((cell, i) =>
      i === 0
        ? h('th', { scope: 'row', class: columns[i].class }, cell)
        : h('td', { class: columns[i].class }, cell))));
  return scrolling(caption, h('table', attributes, h('caption', { class: 'unseen' }, caption), h('thead', {}, h('tr', {}, head)), h('tbody', {}, body)));
}

/** A region that scrolls sideways, reachable by keyboard. */
export function scrolling(label, ...children) {
  return h('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': label }, children);
}

/** Many rows, a page of them at a time: `draw(from, to)` makes what is seen. The place survives redrawing by `memory`. */
export function paged(count, size, what, memory, draw) {
  const box = h('div', { class: 'paged' });
  const body = h('div', {});
  const label = h('span', { class: 'faint', role: 'status' });
  const move = (by) => {
    memory.page += by;
    show();
  };
  const back = button('Previous', () => move(-1), { class: 'quiet', 'aria-label': `Previous ${what}`, 'data-key': `back-${what}` });
  const on = button('Next', () => move(1), { class: 'quiet', 'aria-label': `Next ${what}`, 'data-key': `on-${what}` });
  const show = () => {
    const last = Math.max(0, Math.ceil(count / size) - 1);
    memory.page = Math.min(Math.max(memory.page ?? 0, 0), last);
    const from = memory.page * size;
    const to = Math.min(count, from + size);
    fill(body, draw(from, to));
    setText(label, `${(from + 1).toLocaleString('en')}–${to.toLocaleString('en')} of ${count.toLocaleString('en')} ${what}`);
    // A disabled button would lose the focus; it only says that it does nothing.
    back.setAttribute('aria-disabled', String(memory.page === 0));
    on.setAttribute('aria-disabled', String(memory.page === last));
  };
  show();
  box.append(body);
  if (count > size) box.append(h('p', { class: 'pages' }, back, label, on));
  return box;
}

/** Redraws `element` by `draw` and puts the focus back on the part that had it, by its `data-key`. Parts that were opened stay
 * open. */
export function redraw(element, draw) {
  const focused = element.contains(document.activeElement) ? document.activeElement.closest('[data-key]') : null;
  const key = focused?.dataset.key;
  const opened = new Set([...element.querySelectorAll('details[open][data-key]')].map((d) => d.dataset.key));
  const scrolled = [...element.querySelectorAll('.scroll')].map((s) => [s.scrollLeft, s.scrollTop]);
  draw();
  for (const details of element.querySelectorAll('details[data-key]')) if (opened.has(details.dataset.key)) details.open = true;
  [...element.querySelectorAll('.scroll')].forEach((s, i) => {
    if (scrolled[i]) [s.scrollLeft, s.scrollTop] = scrolled[i];
  });
  if (key !== undefined) {
    const again = [...element.querySelectorAll('[data-key]')].find((e) => e.dataset.key === key);
    again?.focus({ preventScroll: true });
  }
}
