// All groups: search, filters, order, and a table of which only the rows in sight are in the document.

import { Problem, get, query } from './api.js';
import { alert } from './dialog.js';
import { choice, fill, freshId, h, name, say, setText } from './dom.js';
import { ago, compare, count, duration, number } from './format.js';
import { paced } from './live.js';

const PAGE = 1000;
/** Groups kept in memory; beyond, the search asks the server for the start of a name. */
const KEPT_MAX = 20_000;
/** More changed groups than this at once are read with all others. */
const SINGLE_MAX = 5;
const LAG_EVERY_MS = 5000;
const OVERSCAN = 10;

const COLUMNS = [
  { key: 'group', label: 'Group', class: 'grow', order: (g) => g.group_id },
  { key: 'state', label: 'State', order: (g) => g.state },
  { key: 'kind', label: 'Kind', class: 'wide', order: (g) => g.kind },
  { key: 'members', label: 'Members', class: 'num', order: (g) => g.member_count },
  { key: 'lag', label: 'Lag', class: 'num', order: (g) => g.lag?.records ?? -1 },
  { key: 'behind', label: 'Behind', class: 'num wide', order: (g) => g.lag?.ms ?? -1 },
  { key: 'offsets', label: 'Offsets', class: 'num wider', order: (g) => g.offset_count },
  { key: 'rebalances', label: 'Rebalances', class: 'num wider', order: (g) => g.rebalance_count },
  { key: 'rebalanced', label: 'Last rebalance', class: 'wide', order: (g) => g.rebalanced_at_ms ?? -1 },
  { key: 'notices', label: 'Notices', order: (g) => noticesOf(g).length },
];

const STATES = ['Stable', 'Empty', 'PreparingRebalance', 'CompletingRebalance', 'Assigning', 'Reconciling', 'Dead'];
const KINDS = ['classic', 'consumer', 'simple'];

/** What somebody should look at in a group, in words. */
export function noticesOf(group) {
  const notices = [];
  if (group.is_stormy) notices.push({ word: 'Storm', kind: 'bad', mark: '▲', meaning: 'It rebalances over and over.' });
  if (group.has_conflict) notices.push({ word: 'Conflict', kind: 'bad', mark: '≠', meaning: 'Two assign-mode clients commit to one partition.' });
  if (group.is_paused) notices.push({ word: 'Paused', kind: 'calm', mark: '‖', meaning: 'An operator has paused it.' });
  return notices;
}

/** A notice as a small sign: a mark, a word, and what it means in the tooltip. */
export function sign({ word, kind, mark, meaning }) {
  return h('span', { class: `sign ${kind}`, title: meaning }, h('span', { 'aria-hidden': 'true' }, mark), ` ${word}`);
}

const MARKS = { Stable: '●', Empty: '○', Dead: '×' };

/** A group's state: a mark and the word. */
export function stateSign(state) {
  const kind = state === 'Stable' ? 'good' : state === 'Empty' || state === 'Dead' ? 'calm' : 'busy';
  return h('span', { class: `state ${kind}` }, h('span', { 'aria-hidden': 'true' }, MARKS[state] ?? '◐'), ` ${state}`);
}

/** Shows the list in `main`. */
export function listView(main, place) {
  document.title = 'Groups – Convoke';
  const wanted = readPlace(place.search);
  let groups = new Map();
  let counts = null;
  let isWhole = false;
  let order = [];
  const aborted = new AbortController();
  const { signal } = aborted;

  // ------------------------------------------------------------ the parts

  const heading = h('h1', { tabindex: '-1' }, 'Groups');
  const numbers = h('dl', { class: 'numbers' });
  const trouble = h('div', {});
  const limit = h('p', { class: 'notice', hidden: true });
  const search = h('input', { type: 'search', id: freshId('search'), value: wanted.q, autocomplete: 'off', spellcheck: 'false', placeholder: 'Part of a name' });
  const state = select('Any state', STATES, wanted.state);
  const kind = select('Any kind', KINDS, wanted.kind);
  const notices = choice('checkbox', 'notices', 'With notices only', { checked: wanted.notices });
  const found = h('p', { class: 'found', role: 'status' });
  const body = h('tbody', {});
  const above = spacer();
  const below = spacer();
  body.append(above, below);
  const heads = COLUMNS.map((column) => {
    const sort = h('button', { type: 'button', class: 'sort', onclick: () => sortBy(column.key) }, column.label, h('span', { class: 'arrow', 'aria-hidden': 'true' }));
    return { column, th: h('th', { scope: 'col', class: column.class }, sort) };
  });
  const table = h('table', { class: 'groups' },
    h('caption', { class: 'unseen' }, 'Groups. The buttons in the head sort; arrow keys move between groups.'),
    h('thead', {}, h('tr', {}, heads.map((head) => head.th))), body);
  const empty = h('p', { class: 'empty', hidden: true });
  fill(main,
    h('div', { class: 'head' }, heading, numbers), trouble,
    h('search', { class: 'filters' },
      h('div', { class: 'field inline' }, h('label', { for: search.id }, 'Search'), search),
      h('div', { class: 'field inline' }, h('label', { for: state.id }, 'State'), state),
      h('div', { class: 'field inline' }, h('label', { for: kind.id }, 'Kind'), kind),
      notices.node, found),
    limit, table, empty);

  // ------------------------------------------------------------ reading

  const reload = paced(async () => {
    try {
      await readAll();
      fill(trouble);
    } catch (error) {
      if (error.name === 'AbortError') return;
      fill(trouble, alert(error));
    }
  }, 1000);

  async function readAll() {
    const fresh = new Map();
    let after = null;
    const prefix = isWhole || groups.size < KEPT_MAX ? null : search.value;
    do {
      const path = query('/v1/groups', { prefix, limit: PAGE, after });
      const page = await get(path, { signal });
      for (const group of page.groups) fresh.set(group.group_id, group);
      counts = page.counts;
      after = page.next ?? null;
      // The first time they are shown as they come.
      if (groups.size < fresh.size && groups.size < PAGE) {
        groups = new Map(fresh);
        arrange();
      }
    } while (after !== null && fresh.size < KEPT_MAX);
    if (prefix === null || prefix === '') isWhole = after === null;
    groups = fresh;
    limit.hidden = isWhole;
    setText(limit, isWhole ? '' : `There are more than ${number(KEPT_MAX)} groups: these are the first by name. The search finds the others by how their names begin.`);
    arrange();
  }

  let pending = new Set();
  const readPending = paced(async () => {
    const ids = [...pending];
    pending = new Set();
    try {
      for (const id of ids) {
        // In order of names the first that begins with the whole of a name is the group itself.
        const page = await get(query('/v1/groups', { prefix: id, limit: 1 }), { signal });
        const one = page.groups[0];
        if (one?.group_id === id) groups.set(id, one);
        else groups.delete(id);
      }
      arrange();
    } catch (error) {
      if (error.name !== 'AbortError') reload();
    }
  }, 500);

  const readLag = paced(async () => {
    try {
      const answer = await get('/v1/lag', { signal });
      for (const lag of answer.groups) {
        const group = groups.get(lag.group_id);
        if (group && (group.lag?.records !== lag.records || group.lag?.ms !== lag.ms)) {
          groups.set(lag.group_id, { ...group, lag: { records: lag.records, ms: lag.ms } });
        }
      }
      arrange();
    } catch (error) {
      // The list itself tells when the server is gone.
      if (!(error instanceof Problem) && error.name !== 'AbortError') throw error;
    }
  }, LAG_EVERY_MS);
  const lagTimer = setInterval(() => {
    if (!document.hidden && groups.size > 0) readLag();
  }, LAG_EVERY_MS);

  // ------------------------------------------------------------ order and filters

  function arrange() {
    const text = search.value.toLowerCase();
    const kept = [];
    let lag = 0;
    let members = 0;
    let noticed = 0;
    for (const group of groups.values()) {
      lag += group.lag?.records ?? 0;
      members += group.member_count;
      const hasNotices = noticesOf(group).length > 0;
      if (hasNotices) noticed += 1;
      if (text !== '' && !group.group_id.toLowerCase().includes(text)) continue;
      if (state.value !== '' && group.state !== state.value) continue;
      if (kind.value !== '' && group.kind !== kind.value) continue;
      if (notices.input.checked && !hasNotices) continue;
      kept.push(group);
    }
    const by = COLUMNS.find((column) => column.key === wanted.sort) ?? COLUMNS[0];
    const sign = wanted.down ? -1 : 1;
    kept.sort((a, b) => sign * compare(by.order(a), by.order(b)) || compare(a.group_id, b.group_id));
    order = kept;
    table.setAttribute('aria-rowcount', String(order.length + 1));
    showNumbers(members, lag, noticed);
    setText(found, order.length === groups.size ? '' : `${number(order.length)} of ${number(groups.size)}`);
    empty.hidden = order.length > 0;
    setText(empty, groups.size === 0 ? 'No groups yet. Each consumer group shows up here as soon as a client joins or commits.' : 'No group matches.');
    table.hidden = order.length === 0;
    draw();
  }

  function showNumbers(members, lag, noticed) {
    // Where not all are here, the server has counted them.
    const rows = [
      ['Groups', number(isWhole ? groups.size : counts?.groups)],
      ['Members', number(isWhole ? members : counts?.members)],
      ['Lag, records', number(lag)],
      ['With notices', number(noticed)],
    ];
    if (numbers.children.length === 0) for (const [label] of rows) numbers.append(h('div', {}, h('dt', {}, label), h('dd', {})));
    rows.forEach(([, value], i) => setText(numbers.children[i].lastChild, value));
  }

  function sortBy(key) {
    // Names begin with the first, numbers with the greatest.
    if (wanted.sort === key) wanted.down = !wanted.down;
    else [wanted.sort, wanted.down] = [key, !['group', 'state', 'kind'].includes(key)];
    showOrder();
    keepPlace();
    arrange();
    say(`Sorted by ${COLUMNS.find((column) => column.key === key).label}, ${wanted.down ? 'greatest first' : 'least first'}`);
  }

  function showOrder() {
    for (const { column, th } of heads) {
      if (column.key === wanted.sort) th.setAttribute('aria-sort', wanted.down ? 'descending' : 'ascending');
      else th.removeAttribute('aria-sort');
    }
  }

  function keepPlace() {
    const parameters = { q: search.value, state: state.value, kind: kind.value, notices: notices.input.checked ? '1' : '', sort: wanted.sort === 'group' ? '' : wanted.sort, down: wanted.down ? '1' : '' };
    history.replaceState(null, '', query('#/', parameters));
  }

  // ------------------------------------------------------------ rows in sight

  const rows = new Map();
  let rowHeight = 0;

  function draw() {
    rowHeight ||= parseFloat(getComputedStyle(table).getPropertyValue('--row')) || 40;
    const top = body.getBoundingClientRect().top;
    const first = Math.max(0, Math.floor(-top / rowHeight) - OVERSCAN);
    const last = Math.min(order.length, Math.ceil((window.innerHeight - top) / rowHeight) + OVERSCAN);
    const seen = order.slice(Math.min(first, order.length), Math.max(first, last));
    const ids = new Set(seen.map((group) => group.group_id));
    for (const [id, row] of rows) {
      if (ids.has(id)) continue;
      // The group that has the focus scrolls away: the focus stays in the table.
      if (row.tr.contains(document.activeElement)) heading.focus({ preventScroll: true });
      row.tr.remove();
      rows.delete(id);
    }
    let next = above.nextSibling;
    seen.forEach((group, i) => {
      let row = rows.get(group.group_id);
      if (!row) {
        row = makeRow(group.group_id);
        rows.set(group.group_id, row);
      }
      row.tr.setAttribute('aria-rowindex', String(first + i + 2));
      fillRow(row, group);
      if (row.tr === next) next = next.nextSibling;
      else body.insertBefore(row.tr, next);
    });
    stretch(above, first * rowHeight);
    stretch(below, Math.max(0, order.length - first - seen.length) * rowHeight);
  }

  let asked = false;
  const onScroll = () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      if (!signal.aborted) draw();
    });
  };
  window.addEventListener('scroll', onScroll, { signal, passive: true });
  window.addEventListener('resize', onScroll, { signal });

  body.addEventListener('keydown', (event) => {
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -Infinity, End: Infinity };
    const step = steps[event.key];
    const id = event.target.closest('tr')?.dataset.id;
    if (step === undefined || id === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const now = order.findIndex((group) => group.group_id === id);
    const to = Math.min(order.length - 1, Math.max(0, now + step));
    reveal(to);
    rows.get(order[to].group_id)?.link.focus({ preventScroll: true });
  });

  function reveal(index) {
    const top = body.getBoundingClientRect().top + window.scrollY + index * rowHeight;
    const room = window.innerHeight;
    if (top < window.scrollY + 120) window.scrollTo(0, top - 120);
    else if (top + rowHeight > window.scrollY + room - 20) window.scrollTo(0, top + rowHeight - room + 20);
    draw();
  }

  // ------------------------------------------------------------ listening

  let typing = 0;
  search.addEventListener('input', () => {
    clearTimeout(typing);
    typing = setTimeout(() => {
      keepPlace();
      if (!isWhole && groups.size > 0) reload();
      arrange();
    }, 120);
  });
  for (const control of [state, kind, notices.input]) {
    control.addEventListener('change', () => {
      keepPlace();
      arrange();
    });
  }

  showOrder();
  reload();
  return {
    changed(ids) {
      if (ids === null || ids.length > SINGLE_MAX) {
        reload();
        return;
      }
      for (const id of ids) pending.add(id);
      readPending();
    },
    close() {
      aborted.abort();
      clearInterval(lagTimer);
      clearTimeout(typing);
      for (const one of [reload, readPending, readLag]) one.stop();
    },
  };
}

// ---------------------------------------------------------------- pieces

function readPlace(search) {
  const sort = search.get('sort') ?? 'group';
  return {
    q: search.get('q') ?? '',
    state: search.get('state') ?? '',
    kind: search.get('kind') ?? '',
    notices: search.get('notices') === '1',
    sort: COLUMNS.some((column) => column.key === sort) ? sort : 'group',
    down: search.get('down') === '1',
  };
}

function select(any, values, chosen) {
  return h('select', { id: freshId('select') },
    h('option', { value: '' }, any),
    values.map((value) => h('option', { value, selected: value === chosen }, value)));
}

function spacer() {
  return h('tr', { class: 'spacer', 'aria-hidden': 'true' }, h('td', {}));
}

function stretch(row, height) {
  row.firstChild.style.height = `${height}px`;
  row.hidden = height === 0;
}

function makeRow(id) {
  const link = h('a', { href: `#/groups/${encodeURIComponent(id)}` }, name(id));
  const cells = COLUMNS.map((column, i) => (i === 0
    ? h('th', { scope: 'row', class: column.class }, link)
    : h('td', { class: column.class })));
  const tr = h('tr', {}, cells);
  tr.dataset.id = id;
  return { tr, link, cells, group: null };
}

function fillRow(row, group) {
  if (row.group === group) return;
  const [, state, kind, members, lag, behind, offsets, rebalances, rebalanced, notices] = row.cells;
  const before = row.group;
  if (before?.state !== group.state) fill(state, stateSign(group.state));
  setText(kind, group.kind);
  setText(members, number(group.member_count));
  setText(lag, number(group.lag?.records));
  setText(behind, duration(group.lag?.ms));
  setText(offsets, number(group.offset_count));
  setText(rebalances, number(group.rebalance_count));
  if (!before || before.rebalanced_at_ms !== group.rebalanced_at_ms) fill(rebalanced, ago(group.rebalanced_at_ms));
  fill(notices, noticesOf(group).map(sign));
  row.group = group;
}
