// Who commits: the committed offsets with who touched them last, what is in conflict, what nobody consumes; and the trail of
// changes that went back or that an operator made.

import { fill, freshId, h, name, paged, table, visible } from './dom.js';
import { ago, count, duration, moment, number, ranges } from './format.js';
import { holder } from './timeline.js';

export function commitsPanel(group, { memory }) {
  const members = new Map(group.members.map((one) => [one.member.member_id, one.member]));
  return [
    h('h2', {}, 'Who commits'),
    conflicts(group),
    gaps(group),
    offsets(group, members, memory),
  ];
}

function conflicts(group) {
  if (group.conflicts.length === 0) return null;
  return [
    h('h3', {}, 'Conflicts'),
    h('p', {}, 'These clients commit without being members, to the same partitions. Each overwrites what the other committed.'),
    table('Conflicts', [{ label: 'Topic' }, { label: 'Partition', class: 'num' }, { label: 'Clients' }],
      group.conflicts.slice(0, 200).map((one) => [
        name(one.topic), String(one.partition), one.clients.map((client, i) => [i > 0 ? ' and ' : '', toucher(client)])])),
    group.conflicts.length > 200 ? h('p', { class: 'hint' }, `200 of ${number(group.conflicts.length)} are shown.`) : null,
  ];
}

function gaps(group) {
  if (group.gaps.length === 0) return null;
  return [
    h('h3', {}, 'Gaps'),
    h('p', {}, 'Nobody consumes these partitions.'),
    table('Gaps', [{ label: 'Topic' }, { label: 'Partitions' }],
      group.gaps.slice(0, 200).map(({ topic, partitions }) => [name(topic), ranges(partitions)])),
  ];
}

/** A client, its address, and its principal where there is one. */
function toucher(one) {
  const principal = one.principal && one.principal !== 'User:ANONYMOUS' ? `, ${visible(one.principal)}` : '';
  return [name(one.client_id), h('small', { class: 'faint' }, ` ${visible(one.client_host.replace(/^\//, ''))}${principal}`)];
}

function offsets(group, members, memory) {
  const { commits } = group;
  if (commits.length === 0) return h('p', { class: 'empty' }, 'Nothing is committed.');
  memory.filter ??= '';
  memory.pages ??= {};
  const found = h('span', { class: 'found', role: 'status' });
  const box = h('div', {});
  const filter = h('input', { type: 'search', id: freshId('filter'), value: memory.filter, placeholder: 'Topic, client or member', autocomplete: 'off', spellcheck: 'false', 'data-key': 'filter commits' });
  const show = () => {
    const text = memory.filter.toLowerCase();
    const kept = commits.filter((commit) => text === ''
      || [commit.topic, commit.committed_by?.client_id, commit.committed_by?.member_id, commit.fetched_by?.client_id, commit.owner].some((one) => one?.toLowerCase().includes(text)));
    found.textContent = kept.length === commits.length ? '' : `${number(kept.length)} of ${count(commits.length, 'offset')}`;
    fill(box, kept.length === 0 ? h('p', { class: 'empty' }, 'Nothing matches.') : paged(kept.length, 100, 'offsets', memory.pages, (from, to) => offsetsTable(kept.slice(from, to), group, members)));
  };
  filter.addEventListener('input', () => {
    memory.filter = filter.value;
    memory.pages.page = 0;
    show();
  });
  show();
  return [
    h('h3', {}, 'Committed offsets'),
    h('div', { class: 'filters' }, h('div', { class: 'field inline' }, h('label', { for: filter.id }, 'Filter'), filter), found),
    box,
  ];
}

function offsetsTable(commits, group, members) {
  const inConflict = new Set(group.conflicts.map((one) => JSON.stringify([one.topic, one.partition])));
  return table('Committed offsets',
    [
      { label: 'Topic' }, { label: 'Partition', class: 'num' }, { label: 'Offset', class: 'num' }, { label: 'Lag', class: 'num' }, { label: 'Behind', class: 'num' },
      { label: 'Committed' }, { label: 'By' }, { label: 'As' }, { label: 'Fetched' }, { label: 'By' }, { label: 'Consumed by' },
    ],
    commits.map((commit) => [
      [name(commit.topic), inConflict.has(JSON.stringify([commit.topic, commit.partition])) ? [' ', h('span', { class: 'sign bad' }, h('span', { 'aria-hidden': 'true' }, '≠'), ' Conflict')] : null],
      String(commit.partition), number(commit.offset), number(commit.lag_records), duration(commit.lag_ms),
      ago(commit.committed_at_ms),
      commit.committed_by ? toucher(commit.committed_by) : h('span', { class: 'faint', title: 'Before the server started' }, 'not known'),
      commit.committed_by ? as(commit.committed_by) : '–',
      commit.fetched_by ? ago(commit.fetched_at_ms) : h('span', { class: 'faint' }, '–'),
      commit.fetched_by ? toucher(commit.fetched_by) : '–',
      commit.owner ? holder(commit.owner, members) : h('span', { class: 'faint' }, 'nobody'),
    ]));
}

function as(one) {
  return one.member_id ? ['member ', name(one.member_id, 'short')] : 'assign mode';
}

// ---------------------------------------------------------------- audit

export function auditPanel(group, { memory }) {
  const { audit } = group;
  memory.pages ??= {};
  const none = (value) => (value === null || value === undefined ? h('span', { class: 'faint' }, 'none') : number(value));
  return [
    h('h2', {}, 'Audit trail'),
    h('p', { class: 'hint' }, 'Offsets that an operator changed, and offsets that went back. Newest first.'),
    audit.length === 0
      ? h('p', { class: 'empty' }, 'No such change since the server started.')
      : paged(audit.length, 100, 'changes', memory.pages, (from, to) => table('Audit trail',
        [{ label: 'When' }, { label: 'Topic' }, { label: 'Partition', class: 'num' }, { label: 'From', class: 'num' }, { label: 'To', class: 'num' }, { label: 'How' }, { label: 'Who' }],
        audit.slice(from, to).map((one) => [
          h('time', { datetime: new Date(one.at_ms).toISOString() }, moment(one.at_ms)), name(one.topic), String(one.partition), none(one.from), none(one.to), visible(one.how), name(one.who)]))),
  ];
}
