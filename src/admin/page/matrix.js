// The members of a group, and the matrix of partitions and members: who owns what, who is to give up what, who gets what.

import * as actions from './actions.js';
import { button, fill, h, name, paged, setText, table, unseen, visible } from './dom.js';
import { ago, compare, duration, number } from './format.js';

const ROWS = 50;
const COLUMNS = 16;

const CELLS = {
  owned: { mark: '●', word: 'owned' },
  revoked: { mark: '◐', word: 'to be given up' },
  target: { mark: '○', word: 'to be taken' },
};

export function membersPanel(group, { memory, reload }) {
  return [
    h('h2', {}, 'Members'),
    membersTable(group, memory, reload),
    bans(group),
    h('h2', {}, 'Partitions and members'),
    matrix(group, memory),
  ];
}

// ---------------------------------------------------------------- members

function membersTable(group, memory, reload) {
  const { members } = group;
  if (members.length === 0) {
    return h('p', { class: 'empty' }, group.summary.kind === 'simple' ? 'This group has no members: its clients only commit. See who commits.' : 'No members now.');
  }
  memory.members ??= {};
  const total = (assignment) => assignment.reduce((sum, pair) => sum + pair.partitions.length, 0);
  return paged(members.length, 50, 'members', memory.members, (from, to) => table(
    'Members',
    [
      { label: 'Client' }, { label: 'Member id' }, { label: 'Address' }, { label: 'State' }, { label: 'Epoch', class: 'num' },
      { label: 'Owns', class: 'num' }, { label: 'Is to own', class: 'num' }, { label: 'Last heard' }, { label: 'Session', class: 'num' }, { label: 'Actions' },
    ],
    members.slice(from, to).map((one) => {
      const { member } = one;
      const who = visible(member.client_id || member.member_id);
      return [
        [name(member.client_id), member.instance_id ? [h('br'), h('small', {}, 'static: ', name(member.instance_id))] : null],
        name(member.member_id, 'short'),
        name(member.client_host.replace(/^\//, '')),
        [one.state, one.is_leader ? ', leader' : '', one.is_classic && group.summary.kind === 'consumer' ? ', classic protocol' : ''],
        number(one.epoch), number(total(one.owned)), number(total(one.target)), ago(one.seen_at_ms), duration(one.session_timeout_ms),
        h('span', { class: 'row-actions' },
          button('Kick…', () => actions.kick(group, reload, member), { class: 'quiet', 'aria-label': `Kick ${who}`, 'data-key': `kick ${member.member_id}` }),
          button('Drain…', () => actions.drain(group, reload, member), { class: 'quiet', 'aria-label': `Drain ${who}`, 'data-key': `drain ${member.member_id}` })),
      ];
    })));
}

function bans(group) {
  const list = group.banned ?? [];
  if (list.length === 0) return null;
  return h('p', {}, h('strong', {}, 'Kept out: '), list.map((ban, i) => [
    i > 0 ? ', ' : '', name(ban.member_id ?? ban.instance_id ?? ban.client_id ?? ''), ', until ', ago(ban.until_ms)]));
}

// ---------------------------------------------------------------- the matrix

/** Rows by topic and partition: {topic, partition, cells: Map(member index → kind)}. */
function rowsOf(group) {
  const rows = new Map();
  const row = (topic, partition) => {
    const key = JSON.stringify([topic, partition]);
    if (!rows.has(key)) rows.set(key, { topic, partition, cells: new Map(), isGap: false });
    return rows.get(key);
  };
  const isClassic = group.summary.kind === 'classic';
  group.members.forEach((one, index) => {
    for (const { topic, partitions } of one.owned) for (const p of partitions) row(topic, p).cells.set(index, isClassic ? 'owned' : 'revoked');
    for (const { topic, partitions } of one.target) {
      for (const p of partitions) {
        const { cells } = row(topic, p);
        cells.set(index, cells.has(index) ? 'owned' : 'target');
      }
    }
  });
  for (const { topic, partitions } of group.gaps) for (const p of partitions) row(topic, p).isGap = true;
  return [...rows.values()].sort((a, b) => compare(a.topic, b.topic) || a.partition - b.partition);
}

function matrix(group, memory) {
  const rows = rowsOf(group);
  if (rows.length === 0 || group.members.length === 0) return h('p', { class: 'empty' }, 'No partition is assigned.');
  memory.columns ??= { from: 0 };
  memory.rows ??= {};
  const details = h('p', { class: 'details', role: 'status' }, 'Arrow keys move in the matrix; what a cell means is told here.');
  const box = h('div', {});
  const show = () => {
    memory.columns.from = Math.min(memory.columns.from, Math.max(0, Math.floor((group.members.length - 1) / COLUMNS) * COLUMNS));
    fill(box,
      group.members.length > COLUMNS ? columnsBar(group, memory, show) : null,
      paged(rows.length, ROWS, 'partitions', memory.rows, (from, to) => grid(group, rows, from, to, memory, details)));
  };
  show();
  return [legend(), box, details];
}

function columnsBar(group, memory, show) {
  const { length } = group.members;
  const { from } = memory.columns;
  const to = Math.min(length, from + COLUMNS);
  const move = (by) => {
    memory.columns.from = Math.min(Math.max(0, from + by), length - 1);
    show();
  };
  return h('p', { class: 'pages' },
    button('Previous', () => move(-COLUMNS), { class: 'quiet', 'aria-label': 'Previous members of the matrix', 'aria-disabled': String(from === 0) }),
    h('span', { class: 'faint', role: 'status' }, `Members ${from + 1}–${to} of ${number(length)}`),
    button('Next', () => move(COLUMNS), { class: 'quiet', 'aria-label': 'Next members of the matrix', 'aria-disabled': String(to === length) }));
}

function legend() {
  return h('p', { class: 'legend' },
    Object.values(CELLS).map(({ mark, word }, i) => h('span', { class: `cell-${Object.keys(CELLS)[i]}` }, h('span', { class: 'mark', 'aria-hidden': 'true' }, mark), ` ${word}`)),
    h('span', {}, h('span', { class: 'mark', 'aria-hidden': 'true' }, '◇'), ' nobody consumes it'));
}

function grid(group, rows, from, to, memory, details) {
  const first = memory.columns.from;
  const members = group.members.slice(first, first + COLUMNS);
  const head = h('tr', {},
    h('th', { scope: 'col' }, 'Topic'), h('th', { scope: 'col', class: 'num' }, 'Partition'),
    members.map(({ member }) => h('th', { scope: 'col', class: 'member' },
      name(member.instance_id ?? member.client_id), h('br'), h('small', {}, name(tail(member.member_id))))));
  const body = rows.slice(from, to).map((row) => h('tr', {},
    h('th', { scope: 'row' }, name(row.topic)), h('th', { scope: 'row', class: 'num' }, String(row.partition), row.isGap ? [' ', h('span', { class: 'mark', 'aria-hidden': 'true' }, '◇'), unseen('nobody consumes it')] : null),
    members.map((_, i) => cell(row.cells.get(first + i), `${visible(row.topic)} ${row.partition}`, first + i))));
  const element = h('table', { class: 'matrix', role: 'grid', 'aria-label': 'Partitions and members', 'aria-rowcount': rows.length + 1, 'aria-colcount': group.members.length + 2 },
    h('thead', {}, head), h('tbody', {}, body));
  rove(element, (at) => setText(details, sentence(group, rows[from + at.row], first + at.column)));
  return h('div', { class: 'scroll' }, element);
}

/** A cell that screen readers read as a word, eyes as a mark. */
function cell(kind, key, column) {
  const known = CELLS[kind];
  const attributes = { class: known ? `cell cell-${kind}` : 'cell', tabindex: '-1', 'data-key': `cell ${key} ${column}` };
  return h('td', attributes, known
    ? [h('span', { class: 'mark', 'aria-hidden': 'true' }, known.mark), unseen(known.word)]
    : unseen('no'));
}

function sentence(group, row, index) {
  const nameOf = (i) => {
    const { member } = group.members[i];
    return visible(member.instance_id ?? member.client_id ?? member.member_id);
  };
  const place = `${visible(row.topic)}-${row.partition}`;
  const of = (kind) => [...row.cells].filter(([, k]) => k === kind).map(([i]) => nameOf(i));
  const kind = row.cells.get(index);
  const who = nameOf(index);
  const next = of('target');
  if (kind === 'owned') return `${place}: ${who} owns it.`;
  if (kind === 'revoked') return `${place}: ${who} has it and is to give it up${next.length > 0 ? `; ${next.join(', ')} gets it then` : ''}.`;
  if (kind === 'target') {
    const now = of('revoked');
    return `${place}: ${who} is to take it${now.length > 0 ? ` once ${now.join(', ')} has given it up` : ''}.`;
  }
  const owners = [...of('owned'), ...of('revoked')];
  return `${place}: ${who} does not have it; ${owners.length > 0 ? `${owners.join(', ')} does` : 'nobody does'}.`;
}

/** One cell of the grid takes the Tab key; arrows move between cells. */
function rove(element, told) {
  const bodies = [...element.tBodies[0].rows].map((row) => [...row.cells].filter((one) => one.tagName === 'TD'));
  if (bodies.length === 0 || bodies[0].length === 0) return;
  bodies[0][0].tabIndex = 0;
  const find = (target) => {
    for (let row = 0; row < bodies.length; row += 1) {
      const column = bodies[row].indexOf(target);
      if (column >= 0) return { row, column };
    }
    return null;
  };
  element.addEventListener('focusin', (event) => {
    const at = find(event.target.closest('td'));
    if (!at) return;
    element.querySelector('td[tabindex="0"]')?.setAttribute('tabindex', '-1');
    bodies[at.row][at.column].tabIndex = 0;
    told(at);
  });
  element.addEventListener('click', (event) => event.target.closest('td')?.focus());
  element.addEventListener('keydown', (event) => {
    const at = find(event.target.closest('td'));
    if (!at || event.altKey || event.metaKey) return;
    const far = event.ctrlKey;
    const [rows, columns] = [bodies.length - 1, bodies[0].length - 1];
    const to = {
      ArrowDown: [at.row + 1, at.column], ArrowUp: [at.row - 1, at.column],
      ArrowRight: [at.row, at.column + 1], ArrowLeft: [at.row, at.column - 1],
      Home: [far ? 0 : at.row, 0], End: [far ? rows : at.row, columns],
      PageDown: [at.row + 10, at.column], PageUp: [at.row - 10, at.column],
    }[event.key];
    if (!to) return;
    event.preventDefault();
    bodies[Math.min(rows, Math.max(0, to[0]))][Math.min(columns, Math.max(0, to[1]))].focus();
  });
}

/** The end of a member id, which tells members of one client apart. */
function tail(memberId) {
  return memberId.length > 12 ? `…${memberId.slice(-8)}` : memberId;
}
