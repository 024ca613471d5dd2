// The rebalances of a group, newest first: a bar as long as it took, its phases, the sentence that says why, and on request all
// that is known of it.

import { button, h, name, table, unseen, visible } from './dom.js';
import { ago, count, duration, moment, number } from './format.js';

const SHOWN = 25;
const MOVES = 200;

export function timelinePanel(group, { memory, again }) {
  const all = group.rebalances;
  if (all.length === 0) {
    return [h('h2', {}, 'Rebalances'), h('p', { class: 'empty' }, group.summary.kind === 'simple' ? 'A group without members does not rebalance.' : 'None since the server started.')];
  }
  memory.shown ??= SHOWN;
  const list = all.slice(0, memory.shown);
  const lengths = list.map(lengthOf).filter((ms) => ms !== null);
  const longest = Math.max(1, ...lengths);
  const members = new Map(group.members.map((one) => [one.member.member_id, one.member]));
  for (const rebalance of list) for (const member of known(rebalance)) if (!members.has(member.member_id)) members.set(member.member_id, member);
  return [
    h('h2', {}, 'Rebalances'),
    strip(all),
    h('p', { class: 'hint' }, `Bars are as long as a rebalance took; the longest here took ${duration(longest)}.`),
    h('ol', { class: 'timeline', reversed: true, start: list[0].number }, list.map((rebalance) => entry(rebalance, longest, members, group.summary.kind === 'classic' ? 'generation' : 'epoch'))),
    all.length > list.length
      ? button(`Show ${number(Math.min(SHOWN, all.length - list.length))} more of ${number(all.length)}`, () => { memory.shown += SHOWN; again(); }, { class: 'quiet', 'data-key': 'more rebalances' })
      : null,
  ];
}

function known(rebalance) {
  return [...rebalance.triggers.map((trigger) => trigger.member), rebalance.waited_for].filter(Boolean);
}

function lengthOf(rebalance) {
  if (rebalance.ended_at_ms !== null && rebalance.ended_at_ms !== undefined) return Math.max(0, rebalance.ended_at_ms - rebalance.began_at_ms);
  return null;
}

/** When they were, on a line of time. Everything in it stands in the list too. */
function strip(all) {
  const oldest = all[all.length - 1].began_at_ms;
  const now = Math.max(Date.now(), all[0].ended_at_ms ?? all[0].began_at_ms);
  const span = Math.max(1, now - oldest);
  const marks = all.slice(0, 300).map((rebalance) => {
    const mark = h('span', { class: rebalance.outcome === 'running' ? 'tick running' : 'tick' });
    mark.style.left = `${((rebalance.began_at_ms - oldest) / span) * 100}%`;
    mark.style.width = `${(((rebalance.ended_at_ms ?? now) - rebalance.began_at_ms) / span) * 100}%`;
    return mark;
  });
  return h('div', { class: 'strip', 'aria-hidden': 'true' },
    h('div', { class: 'strip-line' }, marks),
    h('div', { class: 'strip-ends' }, h('span', {}, moment(oldest)), h('span', {}, 'now')));
}

const OUTCOMES = { running: '↻', completed: '✓', superseded: '»', emptied: '○' };

function entry(rebalance, longest, members, epoch) {
  const length = lengthOf(rebalance);
  return h('li', { class: 'rebalance', value: rebalance.number },
    h('div', { class: 'rebalance-head' },
      h('span', { class: 'rebalance-number' }, `#${number(rebalance.number)}`),
      ago(rebalance.began_at_ms),
      h('span', { class: `outcome ${rebalance.outcome}` }, h('span', { 'aria-hidden': 'true' }, OUTCOMES[rebalance.outcome] ?? '·'), ` ${rebalance.outcome}`),
      h('span', { class: 'faint' }, length === null ? 'not over yet' : duration(length)),
      h('span', { class: 'faint' }, rebalance.to_epoch === rebalance.from_epoch ? `${epoch} ${rebalance.from_epoch}` : `${epoch} ${rebalance.from_epoch} → ${rebalance.to_epoch}`)),
    h('p', { class: 'why' }, visible(rebalance.why)),
    bar(rebalance, longest),
    h('details', { 'data-key': `rebalance ${rebalance.number}` },
      h('summary', { 'data-key': `summary ${rebalance.number}` }, 'Triggers, waiting, moves', unseen(` of rebalance ${rebalance.number}`)),
      facts(rebalance, members)));
}

function bar(rebalance, longest) {
  const total = rebalance.phases.reduce((sum, phase) => sum + phase.took_ms, 0);
  const length = Math.max(lengthOf(rebalance) ?? total, 1);
  const line = h('div', { class: 'phases', 'aria-hidden': 'true' }, rebalance.phases.map((phase, i) => {
    const part = h('span', { class: `phase phase-${i % 3}`, title: `${phase.phase}: ${duration(phase.took_ms)}` });
    part.style.flexGrow = String(Math.max(phase.took_ms, 0.001));
    return part;
  }));
  line.style.width = `${Math.max(0.4, Math.min(100, (Math.max(total, length) / longest) * 100))}%`;
  return h('div', { class: 'bars' },
    h('div', { class: 'bar-room' }, line),
    h('p', { class: 'phase-words' }, rebalance.phases.map((phase, i) => h('span', {}, h('span', { class: `swatch phase-${i % 3}`, 'aria-hidden': 'true' }), `${phase.phase} ${duration(phase.took_ms)}`))));
}

function facts(rebalance, members) {
  return h('div', { class: 'facts' },
    h('p', {}, h('strong', {}, 'Waited for: '), rebalance.waited_for ? who(rebalance.waited_for) : 'nobody in particular', '. ',
      `${count(rebalance.moved_count, 'partition')} moved, ${number(rebalance.stayed_count)} stayed.`),
    table('Triggers', [{ label: 'Cause' }, { label: 'When' }, { label: 'Member' }, { label: 'Address' }, { label: 'Detail' }],
      rebalance.triggers.map((trigger) => [
        trigger.cause.replaceAll('_', ' '), ago(trigger.at_ms),
        trigger.member ? who(trigger.member) : '–', trigger.member ? name(trigger.member.client_host.replace(/^\//, '')) : '–',
        trigger.detail ? visible(trigger.detail) : '–',
      ])),
    rebalance.moves.length > 0
      ? table('Moves', [{ label: 'Topic' }, { label: 'Partition', class: 'num' }, { label: 'From' }, { label: 'To' }],
        rebalance.moves.slice(0, MOVES).map((move) => [name(move.topic), String(move.partition), holder(move.from, members), holder(move.to, members)]))
      : null,
    rebalance.moved_count > Math.min(MOVES, rebalance.moves.length)
      ? h('p', { class: 'hint' }, `${number(Math.min(MOVES, rebalance.moves.length))} of ${number(rebalance.moved_count)} moves are shown.`)
      : null);
}

function who(member) {
  return [name(member.instance_id ?? member.client_id), ' ', h('small', { class: 'faint' }, name(member.member_id, 'short'))];
}

/** A member by its id, with the name people know it by where that is known. */
export function holder(id, members) {
  if (id === null || id === undefined) return h('span', { class: 'faint' }, 'nobody');
  const member = members.get(id);
  return member ? who(member) : name(id, 'short');
}
