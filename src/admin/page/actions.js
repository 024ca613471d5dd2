// What can be done to a group. Each shows what would change before it does anything.

import { Raw, call, callText, groupPath, query } from './api.js';
import { act, alert, assignmentText, openDialog } from './dialog.js';
import { button, choice, field, fill, freshId, h, name, paged, table, visible } from './dom.js';
import { compare, count, number, parseRanges } from './format.js';
import { holder } from './timeline.js';

const BAN_MS = 60_000;
/** Longer lists are narrowed by typing. */
const TOPICS_SHOWN = 40;

function post(id, what, body) {
  return call('POST', groupPath(id, `/${what}`), body);
}

// ---------------------------------------------------------------- reset

export function reset(group, finished) {
  const id = group.summary.group_id;
  act({
    title: 'Reset offsets',
    intro: h('span', {}, 'Moves committed offsets of ', name(id), ', whether or not members run. Members give the partitions up first and go on from the new offsets.'),
    form: () => resetForm(group),
    ask: (wanted, dryRun) => post(id, 'reset', { ...wanted, dry_run: dryRun }),
    confirm: (would) => `Reset ${count(would.offsets?.length ?? 0, 'offset')}`,
    doing: 'Moving offsets. Members let go of their partitions first; that can take as long as their timeouts.',
    done: 'The offsets are reset.',
    finished,
  });
}

function resetForm(group) {
  const radios = freshId('to');
  const when = h('input', { type: 'datetime-local', step: '1', 'aria-label': 'Time' });
  const shift = h('input', { type: 'number', step: '1', 'aria-label': 'Records; negative goes back', placeholder: '-100' });
  const exact = h('input', { type: 'number', step: '1', min: '0', 'aria-label': 'Offset', placeholder: '0' });
  const other = h('input', { type: 'text', 'aria-label': 'Other group', autocomplete: 'off', spellcheck: 'false' });
  const to = [
    { ...choice('radio', radios, 'The earliest record', { checked: true }), read: () => 'earliest' },
    { ...choice('radio', radios, 'The end: only what comes from now on'), read: () => 'latest' },
    { ...choice('radio', radios, 'The first record since'), control: when, read: () => ({ time_ms: readTime(when) }) },
    { ...choice('radio', radios, 'So many records on (or back, with a minus)'), control: shift, read: () => ({ shift: readWhole(shift, 'how many records') }) },
    { ...choice('radio', radios, 'This offset in each partition'), control: exact, read: () => ({ offset: readOffset(exact) }) },
    { ...choice('radio', radios, 'Where another group is'), control: other, read: () => ({ group: readName(other, 'the other group') }) },
  ];
  for (const one of to) one.control?.addEventListener('input', () => { one.input.checked = true; });
  const which = whichPartitions(group);
  return {
    node: h('div', {},
      h('fieldset', {}, h('legend', {}, 'Go on from'), to.map((one) => (one.control ? h('div', { class: 'choice-with' }, one.node, one.control) : one.node)),
        h('p', { class: 'hint' }, `Times are those of your clock (${zone()}). Offsets of a file: see “Restore”.`)),
      which.node),
    read: () => {
      const topics = which.read();
      const wanted = { to: to.find((one) => one.input.checked).read() };
      if (topics !== null) wanted.topics = topics;
      return wanted;
    },
  };
}

/** All committed partitions, or chosen topics, each with all or some partitions. */
function whichPartitions(group) {
  const committed = group.commits.map((commit) => commit.topic);
  const subscribed = group.members.flatMap((one) => [...one.subscribed, ...one.owned.map((pair) => pair.topic)]);
  const topics = [...new Set([...committed, ...subscribed])].sort(compare);
  const radios = freshId('which');
  const all = choice('radio', radios, 'All committed partitions', { checked: committed.length > 0 });
  const some = choice('radio', radios, 'Only these topics', { checked: committed.length === 0 });
  const rows = topics.map((topic) => {
    const box = choice('checkbox', freshId('topic'), name(topic));
    const partitions = h('input', { type: 'text', 'aria-label': `Partitions of ${visible(topic)}`, placeholder: 'all, or 0, 3, 5-7', autocomplete: 'off' });
    for (const control of [box.input, partitions]) {
      control.addEventListener('input', () => {
        some.input.checked = true;
        if (control === partitions && partitions.value.trim() !== '') box.input.checked = true;
      });
    }
    return { topic, box, partitions, node: h('div', { class: 'choice-with' }, box.node, partitions) };
  });
  const extra = h('input', { type: 'text', 'aria-label': 'Another topic', placeholder: 'Another topic', autocomplete: 'off', spellcheck: 'false' });
  extra.addEventListener('input', () => { some.input.checked = true; });
  const narrow = h('input', { type: 'search', 'aria-label': 'Find a topic', placeholder: 'Find a topic' });
  const shown = () => rows.forEach((row) => { row.node.hidden = !row.box.input.checked && !row.topic.toLowerCase().includes(narrow.value.toLowerCase()); });
  narrow.addEventListener('input', shown);
  return {
    node: h('fieldset', {}, h('legend', {}, 'Which partitions'), all.node, some.node,
      h('div', { class: 'nested' }, rows.length > TOPICS_SHOWN ? narrow : null, h('div', { class: 'topics' }, rows.map((row) => row.node)), extra)),
    read() {
      if (all.input.checked) return null;
      const chosen = rows.filter((row) => row.box.input.checked).map((row) => ({ topic: row.topic, partitions: parseRanges(row.partitions.value) }));
      if (extra.value !== '') chosen.push({ topic: extra.value, partitions: null });
      if (chosen.length === 0) throw new Error('Choose at least one topic, or all committed partitions.');
      return chosen.map((one) => (one.partitions === null ? one.topic : one));
    },
  };
}

function readWhole(input, what) {
  const value = Number(input.value);
  if (input.value.trim() === '' || !Number.isSafeInteger(value)) throw new Error(`Say ${what}, as a whole number.`);
  return value;
}

function readOffset(input) {
  const value = readWhole(input, 'which offset');
  if (value < 0) throw new Error('An offset is 0 or more.');
  return value;
}

function readTime(input) {
  const value = new Date(input.value).getTime();
  if (Number.isNaN(value)) throw new Error('Say since when, with day and time.');
  return value;
}

function readName(input, what) {
  if (input.value === '') throw new Error(`Say the name of ${what}.`);
  return input.value;
}

function zone() {
  const minutes = -new Date().getTimezoneOffset();
  const two = (n) => String(n).padStart(2, '0');
  const hours = Math.floor(Math.abs(minutes) / 60);
  return `UTC${minutes < 0 ? '−' : '+'}${two(hours)}:${two(Math.abs(minutes) % 60)}`;
}

// ---------------------------------------------------------------- members

/** Kicks one member, or those that are chosen. */
export function kick(group, finished, member = null) {
  const id = group.summary.group_id;
  act({
    title: 'Kick members',
    intro: 'They are removed at once, and their partitions go to the others. A client that is not kept out comes back by itself.',
    form: () => {
      const which = whichMembers(group, member, 'checkbox');
      const ban = h('input', { type: 'number', min: '0', step: '1', value: String(BAN_MS / 1000) });
      return {
        node: h('div', {}, which.node, field('Keep out for so many seconds', ban, '0: they may come back at once.')),
        read: () => {
          const seconds = readWhole(ban, 'for how long, in seconds');
          if (seconds < 0) throw new Error('A time is 0 or more.');
          return { members: which.read(), ban_ms: seconds * 1000 };
        },
      };
    },
    ask: (wanted, dryRun) => post(id, 'kick', { ...wanted, dry_run: dryRun }),
    confirm: (would) => `Kick ${count(would.members?.length ?? 0, 'member')}`,
    doing: 'Removing…',
    done: 'Done.',
    danger: true,
    finished,
  });
}

/** Drains one member. */
export function drain(group, finished, member = null) {
  const id = group.summary.group_id;
  act({
    title: 'Drain a member',
    intro: 'It is assigned nothing, gives up what it has in order, and is let go.',
    form: () => {
      const which = whichMembers(group, member, 'radio');
      return { node: which.node, read: () => ({ member: which.read()[0] }) };
    },
    ask: (wanted, dryRun) => post(id, 'drain', { ...wanted, dry_run: dryRun }),
    confirm: 'Drain it',
    doing: 'Draining. It gives up its partitions first; that can take as long as its timeout.',
    done: 'The member is drained.',
    finished,
  });
}

/** A choice of members, by instance id where they are static, else by member id; or all of a client id. */
function whichMembers(group, chosen, type) {
  const radios = freshId('member');
  const rows = group.members.map(({ member }) => {
    const label = h('span', {}, name(member.instance_id ?? member.client_id), ' ', h('small', { class: 'faint' }, name(member.member_id)));
    const checked = chosen ? chosen.member_id === member.member_id : false;
    return { ...choice(type, radios, label, { checked }), who: member.instance_id ? { instance_id: member.instance_id } : { member_id: member.member_id } };
  });
  const client = h('input', { type: 'text', autocomplete: 'off', spellcheck: 'false' });
  return {
    node: h('fieldset', {}, h('legend', {}, type === 'radio' ? 'Member' : 'Members'),
      rows.length === 0 ? h('p', { class: 'empty' }, 'The group has no members.') : h('div', { class: 'topics' }, rows.map((row) => row.node)),
      type === 'checkbox' ? field('Or every member of this client id', client) : null),
    read() {
      const members = rows.filter((row) => row.input.checked).map((row) => row.who);
      if (client.value !== '') members.push({ client_id: client.value });
      if (members.length === 0) throw new Error(type === 'radio' ? 'Choose a member.' : 'Choose at least one member.');
      return members;
    },
  };
}

// ---------------------------------------------------------------- the group as a whole

function plain(group, finished, what, words) {
  const id = group.summary.group_id;
  act({
    ...words,
    intro: h('span', {}, words.intro, ' Group: ', name(id), '.'),
    ask: (_, dryRun) => post(id, what, { dry_run: dryRun }),
    finished,
  });
}

export function pause(group, finished) {
  plain(group, finished, 'pause', {
    title: 'Pause the group',
    intro: 'Members stay and own nothing until the group is resumed.',
    confirm: 'Pause the group',
    doing: 'Pausing. Members give up their partitions first.',
    done: 'The group is paused.',
  });
}

export function resume(group, finished) {
  plain(group, finished, 'resume', {
    title: 'Resume the group',
    intro: 'Members are assigned partitions again.',
    confirm: 'Resume the group',
    doing: 'Resuming…',
    done: 'The group is resumed.',
  });
}

export function rebalance(group, finished) {
  plain(group, finished, 'rebalance', {
    title: 'Rebalance',
    intro: 'Partitions are assigned anew.',
    confirm: 'Rebalance',
    doing: 'Rebalancing…',
    done: 'The group rebalances.',
  });
}

export function clone(group, finished) {
  const id = group.summary.group_id;
  act({
    title: 'Clone offsets',
    intro: h('span', {}, 'Another group gets the committed offsets of ', name(id), '.'),
    form: () => {
      const to = h('input', { type: 'text', autocomplete: 'off', spellcheck: 'false', required: true });
      return { node: field('Name of the other group', to), read: () => ({ to: readName(to, 'the other group') }) };
    },
    ask: (wanted, dryRun) => post(id, 'clone', { ...wanted, dry_run: dryRun }),
    confirm: (would) => `Clone ${count(would.offsets?.length ?? 0, 'offset')}`,
    doing: 'Cloning…',
    done: 'The offsets are cloned.',
    finished,
  });
}

export function remove(group, finished) {
  const id = group.summary.group_id;
  act({
    title: 'Delete the group',
    intro: h('span', {}, 'Forgets ', name(id), ' and all its offsets. A back-up of the offsets can be restored later.'),
    ask: (_, dryRun) => call('DELETE', query(groupPath(id), { dry_run: dryRun })),
    confirm: 'Delete the group',
    doing: 'Deleting…',
    done: 'The group is deleted.',
    danger: true,
    finished,
  });
}

// ---------------------------------------------------------------- back-up and restore

/** Downloads the offsets, as the server wrote them. */
export async function backup(group) {
  const id = group.summary.group_id;
  try {
    const text = await callText('GET', groupPath(id, '/offsets'));
    const url = URL.createObjectURL(new Blob([text], { type: 'application/json' }));
    const day = new Date().toISOString().slice(0, 19).replaceAll(':', '');
    const link = h('a', { href: url, download: `offsets ${id.replace(/[^\w.-]+/g, '_').slice(0, 80)} ${day}.json` });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(url), 60_000);
  } catch (error) {
    const dialog = openDialog('Back up');
    dialog.show(alert(error), h('p', { class: 'buttons' }, button('Close', dialog.close)));
  }
}

export function restore(group, finished) {
  const id = group.summary.group_id;
  act({
    title: 'Restore offsets',
    intro: h('span', {}, 'Moves the offsets of ', name(id), ' to those of a back-up. Members give the partitions up first and go on from there.'),
    form: () => {
      const file = h('input', { type: 'file', accept: '.json,application/json', required: true });
      return {
        node: field('File', file, 'A file that “Back up” made.'),
        read: () => {
          if (file.files.length === 0) throw new Error('Choose a file.');
          return readBackup(file.files[0]);
        },
      };
    },
    ask: (body, dryRun) => call('PUT', query(groupPath(id, '/offsets'), { dry_run: dryRun }), body),
    confirm: (would) => `Restore ${count(would.offsets?.length ?? 0, 'offset')}`,
    doing: 'Moving offsets. Members let go of their partitions first; that can take as long as their timeouts.',
    done: 'The offsets are restored.',
    finished,
  });
}

async function readBackup(file) {
  const text = await file.text();
  let document = null;
  try {
    document = JSON.parse(text);
  } catch {
    // told below
  }
  if (!Array.isArray(document?.offsets)) throw new Error(`${visible(file.name)} is no back-up of offsets: it has no list “offsets”.`);
  return new Raw(text);
}

// ---------------------------------------------------------------- preview

/** Which partitions would move if something changed. Changes nothing, so nothing is to be confirmed. */
export function preview(group) {
  const id = group.summary.group_id;
  const dialog = openDialog('Preview an assignment');
  const added = h('input', { type: 'number', min: '0', max: '1000', step: '1', value: '0' });
  const leaving = group.members.map(({ member }) => ({
    ...choice('checkbox', 'gone', h('span', {}, name(member.instance_id ?? member.client_id), ' ', h('small', { class: 'faint' }, name(member.member_id)))),
    member,
  }));
  const topic = h('input', { type: 'text', autocomplete: 'off', spellcheck: 'false' });
  const partitions = h('input', { type: 'number', min: '1', step: '1' });
  const assignor = h('select', {},
    h('option', { value: '' }, `the group's own${group.assignor ? ` (${visible(group.assignor)})` : ''}`),
    ['uniform', 'range'].map((one) => h('option', { value: one }, one)));
  const outcome = h('div', { 'aria-live': 'polite' });
  const form = h('form', { novalidate: true },
    h('p', {}, 'What would move if the group were different? Nothing changes by asking.'),
    field('Members more', added),
    leaving.length > 0 ? h('fieldset', {}, h('legend', {}, 'Without these members'), h('div', { class: 'topics' }, leaving.map((one) => one.node))) : null,
    h('div', { class: 'pair' }, field('With this topic', topic), field('of so many partitions', partitions)),
    field('Assignor', assignor),
    h('p', { class: 'buttons' }, h('button', { type: 'submit', class: 'primary' }, 'Preview'), button('Close', dialog.close)));
  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    try {
      const wanted = { members_added: readWhole(added, 'how many members') };
      const gone = leaving.filter((one) => one.input.checked).map((one) => ({ member_id: one.member.member_id }));
      if (gone.length > 0) wanted.members_removed = gone;
      if (topic.value !== '') wanted.topics = [{ topic: topic.value, partitions: readWhole(partitions, 'how many partitions the topic has') }];
      if (assignor.value !== '') wanted.assignor = assignor.value;
      dialog.busy(true);
      fill(outcome, previewed(await post(id, 'preview', wanted), group));
    } catch (error) {
      fill(outcome, alert(error));
    } finally {
      dialog.busy(false);
    }
    outcome.scrollIntoView({ block: 'nearest' });
  });
  dialog.show(form, outcome);
  added.focus();
}

function previewed(found, group) {
  const members = new Map([...group.members, ...found.members].map((one) => [one.member.member_id, one.member]));
  return [
    h('h3', {}, 'What would move'),
    h('p', {}, `With the assignor ${visible(found.assignor)}, ${count(found.moves.length, 'partition')} would move and ${number(found.stayed_count)} would stay.`),
    found.moves.length > 0
      ? paged(found.moves.length, 100, 'moves', {}, (from, to) => table('Moves', [{ label: 'Topic' }, { label: 'Partition', class: 'num' }, { label: 'From' }, { label: 'To' }],
        found.moves.slice(from, to).map((move) => [name(move.topic), String(move.partition), holder(move.from, members), holder(move.to, members)]), { class: 'dry-run' }))
      : null,
    h('h3', {}, 'What each would own'),
    paged(found.members.length, 50, 'members', {}, (from, to) => table('Members', [{ label: 'Member' }, { label: 'Owns' }],
      found.members.slice(from, to).map((one) => [holder(one.member.member_id, members), assignmentText(one.owned)]))),
  ];
}
