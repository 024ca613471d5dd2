// Dialogs, and the way every action goes: say what is wanted, see what would change, confirm, see what came of it.

import { Problem } from './api.js';
import { button, fill, freshId, h, name, table, paged } from './dom.js';
import { count, duration, number, ranges } from './format.js';

/** Opens a modal dialog. `show(node…)` sets what is in it; Escape and `close` end it, and `closed` is told. The focus goes back
 * to where it was. */
export function openDialog(title, closed = () => {}) {
  const heading = freshId('title');
  const before = document.activeElement;
  const body = h('div', { class: 'dialog-body' });
  const element = h('dialog', { 'aria-labelledby': heading },
    h('header', {}, h('h2', { id: heading }, title), button('×', () => element.close(), { class: 'quiet close', 'aria-label': 'Close' })),
    body);
  element.addEventListener('close', () => {
    element.remove();
    closed();
    before?.focus?.({ preventScroll: true });
  });
  document.body.append(element);
  element.showModal();
  return {
    element,
    show: (...nodes) => fill(body, nodes),
    busy: (on) => element.setAttribute('aria-busy', String(on)),
    close: () => element.close(),
    isOpen: () => element.open,
  };
}

/** What went wrong, plainly, and announced. */
export function alert(error) {
  const known = error instanceof Problem;
  const title = known ? (error.status ? `${error.title} (${error.status})` : error.title) : null;
  return h('div', { class: 'notice bad', role: 'alert' },
    title ? h('strong', {}, title) : null,
    h('p', {}, error.message));
}

/** An action, from what is wanted to what came of it.
 *  `form`: optional () => {node, read}; `read` gives the wanted values or throws a sentence.
 *  `ask`: (values, dryRun) => a promise of what was, or would be, done.
 *  `confirm`: what the button says that does it. `doing`, `done`: sentences. `danger`: it takes something away.
 *  `finished`: told when it is done. */
export function act({ title, intro, form, ask, confirm, doing, done, danger = false, finished = () => {}, show = operatedView }) {
  const dialog = openDialog(title);
  let wanted;
  let filled;

  function fillIn(error) {
    filled ??= form();
    const submit = h('button', { type: 'submit', class: 'primary' }, 'Show what would change');
    const body = h('form', { novalidate: true },
      intro ? h('p', {}, intro) : null, filled.node, error ? alert(error) : null,
      h('p', { class: 'buttons' }, submit, button('Cancel', dialog.close)));
    body.addEventListener('submit', (event) => {
      event.preventDefault();
      try {
        wanted = filled.read();
      } catch (e) {
        fillIn(e);
        return;
      }
      dryRun();
    });
    dialog.show(body);
    focusFirst(body, error ? '.primary' : 'input, select, textarea');
  }

  async function dryRun() {
    dialog.show(form ? null : h('p', {}, intro), working('Asking what would change…'));
    dialog.busy(true);
    try {
      const would = await ask(await wanted, true);
      if (dialog.isOpen()) review(would);
    } catch (error) {
      if (!dialog.isOpen()) return;
      if (form) fillIn(error);
      else dialog.show(h('p', {}, intro), alert(error), h('p', { class: 'buttons' }, button('Close', dialog.close)));
    } finally {
      dialog.busy(false);
    }
  }

  function review(would) {
    const yes = button(typeof confirm === 'function' ? confirm(would) : confirm, () => carryOut(), { class: danger ? 'danger' : 'primary', 'data-confirm': '' });
    const heading = h('h3', { tabindex: '-1' }, 'What would change');
    dialog.show(
      form ? null : h('p', {}, intro), heading, show(would),
      h('p', { class: 'hint' }, 'Nothing has been done yet.'),
      h('p', { class: 'buttons' }, yes, form ? button('Back', () => fillIn()) : null, button('Cancel', dialog.close)));
    heading.focus();
  }

  async function carryOut() {
    dialog.show(working(doing));
    dialog.busy(true);
    try {
      const did = await ask(await wanted, false);
      finished();
      if (!dialog.isOpen()) return;
      const heading = h('h3', { tabindex: '-1', class: 'good-text' }, done);
      dialog.show(heading, show(did, true), h('p', { class: 'buttons' }, button('Close', dialog.close, { class: 'primary' })));
      heading.focus();
    } catch (error) {
      finished();
      if (!dialog.isOpen()) return;
      dialog.show(alert(error), h('p', { class: 'buttons' }, form ? button('Back', () => fillIn()) : null, button('Close', dialog.close)));
      focusFirst(dialog.element, '.buttons button');
    } finally {
      dialog.busy(false);
    }
  }

  if (form) fillIn();
  else dryRun();
}

function working(text) {
  return h('p', { class: 'working', role: 'status' }, h('span', { class: 'spinner', 'aria-hidden': 'true' }), text);
}

function focusFirst(element, selector) {
  element.querySelector(selector)?.focus();
}

/** What an action did, or would do, as tables. */
export function operatedView(operated, isDone = false) {
  const offsets = operated?.offsets ?? [];
  const members = operated?.members ?? [];
  const notes = operated?.notes ?? [];
  const parts = [];
  if (offsets.length > 0) {
    parts.push(paged(offsets.length, 100, 'offsets', {}, (from, to) => table(
      'Offsets before and after',
      [
        { label: 'Topic' }, { label: 'Partition', class: 'num' }, { label: isDone ? 'Was' : 'Now', class: 'num' },
        { label: isDone ? 'Is' : 'Then', class: 'num' }, { label: 'Change', class: 'num' }, { label: 'Held by' },
      ],
      offsets.slice(from, to).map((change) => [
        name(change.topic), number(change.partition), offset(change.from), offset(change.to), difference(change),
        change.held_by ? name(change.held_by, 'short') : h('span', { class: 'faint' }, 'nobody'),
      ]),
      { class: 'dry-run' })));
  }
  if (members.length > 0) {
    parts.push(paged(members.length, 50, 'members', {}, (from, to) => table(
      'Members concerned',
      [{ label: 'Member' }, { label: 'Client' }, { label: isDone ? 'What happened' : 'What would happen' }, { label: 'Gives up' }],
      members.slice(from, to).map((one) => [
        name(one.member.instance_id ?? one.member.member_id, 'short'), name(one.member.client_id), one.change, assignmentText(one.gives_up),
      ]),
      { class: 'dry-run' })));
  }
  if (parts.length === 0) parts.push(h('p', { class: 'dry-run' }, isDone ? 'No offset moved and no member was concerned.' : 'No offset would move and no member is concerned.'));
  if (notes.length > 0) parts.push(h('ul', { class: 'notes' }, notes.map((note) => h('li', {}, note))));
  if (isDone && operated?.took_ms !== undefined) parts.push(h('p', { class: 'hint' }, `It took ${duration(operated.took_ms)}.`));
  return h('div', {}, parts);
}

function offset(value) {
  return value === null || value === undefined ? h('span', { class: 'faint' }, 'none') : number(value);
}

function difference({ from, to }) {
  if (from === null || from === undefined || to === null || to === undefined) return '–';
  const by = to - from;
  if (by === 0) return 'stays';
  return by > 0 ? `+${number(by)}` : `−${number(-by)}`;
}

/** [{topic, partitions}] in words. */
export function assignmentText(pairs) {
  const list = pairs ?? [];
  if (list.length === 0) return h('span', { class: 'faint' }, 'nothing');
  const shown = list.slice(0, 4);
  const total = list.reduce((sum, pair) => sum + pair.partitions.length, 0);
  return h('span', {},
    shown.map((pair, i) => [i > 0 ? '; ' : '', name(pair.topic), ' ', pair.partitions.length > 40 ? count(pair.partitions.length, 'partition') : ranges(pair.partitions)]),
    list.length > shown.length ? ` and more: ${count(total, 'partition')} in all` : '');
}
