// One group: what it is, what is wrong with it, the actions, and a panel for each question that is asked of it.

import { get, groupPath } from './api.js';
import * as actions from './actions.js';
import { auditPanel, commitsPanel } from './commits.js';
import { alert } from './dialog.js';
import { button, fill, h, name, redraw, say, setText, visible } from './dom.js';
import { ago, count, duration, number, ranges } from './format.js';
import { noticesOf, sign, stateSign } from './list.js';
import { paced } from './live.js';
import { membersPanel } from './matrix.js';
import { settingsPanel } from './settings.js';
import { timelinePanel } from './timeline.js';

const TABS = [
  { key: 'members', label: 'Members', draw: membersPanel, of: (g) => [g.members, g.gaps, g.flapping, g.banned, g.summary.kind] },
  { key: 'rebalances', label: 'Rebalances', draw: timelinePanel, of: (g) => [g.rebalances, g.members.map((m) => m.member), g.storm] },
  { key: 'commits', label: 'Who commits', draw: commitsPanel, of: (g) => [g.commits, g.conflicts, g.gaps, g.members.map((m) => m.member)] },
  { key: 'audit', label: 'Audit trail', draw: auditPanel, of: (g) => [g.audit] },
  { key: 'settings', label: 'Settings', draw: settingsPanel, of: (g) => [g.settings] },
];
const POLL_MS = 5000;

/** Shows a group in `main`. */
export function groupView(main, place) {
  const { id } = place;
  document.title = `${visible(id)} – Convoke`;
  let group = null;
  let tab = tabOf(place);
  let drawn = {};
  const memory = {};
  const aborted = new AbortController();

  const heading = h('h1', { tabindex: '-1' }, name(id));
  const signs = h('p', { class: 'signs' });
  const facts = h('dl', { class: 'numbers' });
  const trouble = h('div', {});
  const notices = h('div', {});
  const bar = h('div', { class: 'bar', role: 'group', 'aria-label': 'Actions' });
  const tabs = h('div', { class: 'tabs', role: 'tablist', 'aria-label': 'About this group' });
  const panel = h('section', { class: 'panel', role: 'tabpanel', id: 'panel', tabindex: '0' });
  fill(main,
    h('nav', { class: 'crumbs', 'aria-label': 'Place' }, h('a', { href: '#/' }, 'Groups'), h('span', { 'aria-hidden': 'true' }, ' / '), h('span', { 'aria-current': 'page' }, name(id))),
    h('div', { class: 'head' }, h('div', {}, heading, signs), facts),
    trouble, notices, bar, tabs, panel);

  const tabButtons = TABS.map((one) => {
    const node = button(one.label, () => choose(one), { role: 'tab', id: `tab-${one.key}`, 'aria-controls': 'panel' });
    return { one, node };
  });
  fill(tabs, tabButtons.map(({ node }) => node));
  tabs.addEventListener('keydown', (event) => {
    const now = TABS.indexOf(tab);
    const to = { ArrowRight: now + 1, ArrowLeft: now - 1, Home: 0, End: TABS.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    const next = (to + TABS.length) % TABS.length;
    choose(TABS[next]);
    tabButtons[next].node.focus();
  });

  function choose(one) {
    if (one !== tab) location.hash = `#/groups/${encodeURIComponent(id)}/${one.key}`;
  }

  function showTabs() {
    for (const { one, node } of tabButtons) {
      node.setAttribute('aria-selected', String(one === tab));
      node.tabIndex = one === tab ? 0 : -1;
    }
    panel.setAttribute('aria-labelledby', `tab-${tab.key}`);
  }

  const reload = paced(async () => {
    try {
      const fresh = await get(groupPath(id), { signal: aborted.signal });
      tell(group, fresh);
      group = fresh;
      fill(trouble);
      draw();
    } catch (error) {
      if (error.name === 'AbortError') return;
      fill(trouble, alert(error));
      if (error.status === 404) gone();
    }
  }, 1000);

  function gone() {
    group = null;
    drawn = {};
    fill(signs);
    fill(facts);
    fill(notices);
    fill(panel);
    bar.hidden = true;
    tabs.hidden = true;
    panel.hidden = true;
  }

  /** What a screen reader hears of a change. */
  function tell(before, after) {
    if (!before) return;
    const parts = [];
    if (before.summary.state !== after.summary.state) parts.push(`State: ${after.summary.state}`);
    if (before.summary.member_count !== after.summary.member_count) parts.push(count(after.summary.member_count, 'member'));
    const [was, is] = [before.rebalances[0], after.rebalances[0]];
    if (is && is.ended_at_ms && (was?.number !== is.number || !was.ended_at_ms)) parts.push(visible(is.why));
    if (parts.length > 0) say(parts.join('. '));
  }

  /** Draws what differs from what is on the page. */
  function part(key, values, element, make) {
    const now = JSON.stringify(values);
    if (drawn[key] === now) return;
    drawn[key] = now;
    redraw(element, () => fill(element, make()));
  }

  function draw() {
    if (!group) return;
    const { summary } = group;
    bar.hidden = tabs.hidden = panel.hidden = false;
    part('signs', [summary.state, summary.kind, noticesOf(summary), Boolean(group.operation)], signs, () => [
      stateSign(summary.state), h('span', { class: 'sign' }, summary.kind === 'simple' ? 'only commits' : `${summary.kind} protocol`), noticesOf(summary).map(sign),
      group.operation ? sign({ word: 'Operation', kind: 'busy', mark: '↻', meaning: 'An operation runs.' }) : null,
    ]);
    drawFacts();
    part('notices', [group.storm, group.operation, group.conflicts.length, group.gaps, group.flapping, summary.is_paused], notices, drawNotices);
    part('bar', [summary.is_paused, summary.kind], bar, () => actionBar());
    showTabs();
    const counts = { members: group.members.length, rebalances: group.rebalances.length, commits: group.commits.length, audit: group.audit.length };
    for (const { one, node } of tabButtons) {
      setText(node, counts[one.key] === undefined ? one.label : `${one.label} (${number(counts[one.key])})`);
    }
    memory[tab.key] ??= {};
    part('panel', [tab.key, tab.of(group)], panel, () => tab.draw(group, { memory: memory[tab.key], reload, again: () => { drawn.panel = null; draw(); } }));
  }

  function drawFacts() {
    const { summary } = group;
    const rows = [
      ['Members', number(summary.member_count)],
      [summary.kind === 'classic' ? 'Generation' : 'Epoch', summary.kind === 'simple' ? '–' : number(summary.epoch)],
      ['Assignor', group.assignor ? visible(group.assignor) : '–'],
      ['Lag, records', number(summary.lag?.records)],
      ['Behind', duration(summary.lag?.ms)],
    ];
    part('facts', [rows, summary.rebalanced_at_ms], facts, () => [
      rows.map(([label, value]) => h('div', {}, h('dt', {}, label), h('dd', {}, value))),
      h('div', {}, h('dt', {}, 'Last rebalance'), h('dd', {}, ago(summary.rebalanced_at_ms))),
    ]);
  }

  function drawNotices() {
    const list = [];
    if (group.operation) list.push(h('div', { class: 'notice busy' }, h('strong', {}, 'Running: '), visible(group.operation)));
    if (group.storm) list.push(h('div', { class: 'notice bad' }, h('strong', {}, '▲ Storm. '), visible(group.storm)));
    if (group.flapping.length > 0) {
      list.push(h('div', { class: 'notice bad' }, h('strong', {}, 'Members that come and go: '),
        group.flapping.map((one, i) => [i > 0 ? ', ' : '', name(one.member.instance_id ?? one.member.client_id), ` (${count(one.count, 'time')})`])));
    }
    if (group.conflicts.length > 0) {
      list.push(h('div', { class: 'notice bad' }, h('strong', {}, '≠ Conflict. '),
        `Clients in assign mode overwrite each other's offsets in ${count(group.conflicts.length, 'partition')}. “Who commits” tells which.`));
    }
    if (group.gaps.length > 0) {
      const topics = group.gaps;
      list.push(h('div', { class: 'notice' }, h('strong', {}, '◇ Nobody consumes '),
        topics.slice(0, 5).map(({ topic, partitions }, i) => [i > 0 ? '; ' : '', name(topic), ' ', partitions.length > 30 ? count(partitions.length, 'partition') : ranges(partitions)]),
        topics.length > 5 ? ` and ${count(topics.length - 5, 'topic')} more` : '', '.'));
    }
    if (group.summary.is_paused) list.push(h('div', { class: 'notice' }, h('strong', {}, '‖ Paused. '), 'Members stay and own nothing until the group is resumed.'));
    return list;
  }

  function actionBar() {
    const all = (action) => () => actions[action](group, reload);
    const one = (key, label, attributes = {}) => button(label, all(key), { 'data-key': key, ...attributes });
    return [
      one('reset', 'Reset offsets…', { class: 'primary' }),
      group.summary.is_paused ? one('resume', 'Resume…') : one('pause', 'Pause…'),
      one('rebalance', 'Rebalance…'),
      one('preview', 'Preview…'),
      one('kick', 'Kick…'),
      one('drain', 'Drain…'),
      one('backup', 'Back up'),
      one('restore', 'Restore…'),
      one('clone', 'Clone…'),
      one('remove', 'Delete…', { class: 'danger-quiet' }),
    ];
  }

  const timer = setInterval(() => {
    if (!document.hidden) reload();
  }, POLL_MS);
  showTabs();
  bar.hidden = tabs.hidden = panel.hidden = true;
  reload();
  return {
    go(to) {
      tab = tabOf(to);
      draw();
      showTabs();
    },
    changed(ids) {
      if (ids === null || ids.includes(id)) reload();
    },
    close() {
      aborted.abort();
      clearInterval(timer);
      reload.stop();
    },
  };
}

function tabOf(place) {
  return TABS.find((one) => one.key === place.tab) ?? TABS[0];
}
