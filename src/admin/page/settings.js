// What a group sets for itself, over the server's own settings.

import { groupPath, call } from './api.js';
import { act } from './dialog.js';
import { choice, field, h, name, table } from './dom.js';
import { duration, number } from './format.js';

const HOUR_MS = 3_600_000;

const SETTINGS = [
  { key: 'offsets_retention_ms', label: 'Offsets are kept without members for', show: (value) => (value === -1 ? 'ever' : duration(value)) },
  { key: 'members_max', label: 'Most members', show: number },
  { key: 'offsets_max', label: 'Most partitions with an offset', show: number },
];

function shown(setting, value) {
  return value === null || value === undefined ? "the server's setting" : setting.show(value);
}

export function settingsPanel(group, { reload }) {
  const now = group.settings;
  const retention = retentionField(now.offsets_retention_ms);
  const members = countField('members_max', now.members_max);
  const offsets = countField('offsets_max', now.offsets_max);
  const form = h('form', { class: 'settings', novalidate: true },
    retention.node,
    field('Most members', members, 'Empty: the server’s setting. A member too many is refused with GROUP_MAX_SIZE_REACHED.'),
    field('Most partitions with a committed offset', offsets, 'Empty: the server’s setting. Commits beyond it are refused.'),
    h('p', { class: 'buttons' }, h('button', { type: 'submit', class: 'primary', 'data-key': 'save settings' }, 'Review the change…')));
  const trouble = h('div', { role: 'alert' });
  form.prepend(trouble);
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    trouble.replaceChildren();
    try {
      const wanted = { offsets_retention_ms: retention.read(), members_max: readCount(members), offsets_max: readCount(offsets) };
      review(group, wanted, reload);
    } catch (error) {
      trouble.append(h('p', { class: 'notice bad' }, error.message));
    }
  });
  return [h('h2', {}, 'Settings'), h('p', { class: 'hint' }, 'They hold for this group only and stay until they are taken back.'), form];
}

/** A change of settings is its own dry run: what is now, what would be. */
function review(group, wanted, reload) {
  const id = group.summary.group_id;
  const before = { ...group.settings };
  act({
    title: 'Change settings',
    intro: h('span', {}, 'Settings of ', name(id), '.'),
    ask: (_, dryRun) => (dryRun ? Promise.resolve(wanted) : call('PUT', groupPath(id, '/settings'), wanted)),
    show: (after, isDone) => table('Settings before and after',
      [{ label: 'Setting' }, { label: isDone ? 'Was' : 'Now' }, { label: isDone ? 'Is' : 'Then' }],
      SETTINGS.map((setting) => [setting.label, shown(setting, before[setting.key]), shown(setting, wanted[setting.key])]),
      { class: 'dry-run' }),
    confirm: 'Change settings',
    doing: 'Changing the settings…',
    done: 'The settings are changed.',
    finished: reload,
  });
}

function countField(key, value) {
  return h('input', { type: 'number', min: '1', step: '1', inputmode: 'numeric', value: value ?? '', 'data-key': key });
}

function readCount(input) {
  if (input.value.trim() === '' && !input.validity?.badInput) return null;
  const value = Number(input.value);
  if (!Number.isSafeInteger(value) || value < 1) throw new Error(`“${input.value}” is no whole number of at least 1.`);
  return value;
}

function retentionField(value) {
  const server = choice('radio', 'retention', 'As long as the server’s setting says', { checked: value === null || value === undefined, 'data-key': 'retention server' });
  const ever = choice('radio', 'retention', 'For ever', { checked: value === -1, 'data-key': 'retention ever' });
  const some = choice('radio', 'retention', 'For so many hours', { checked: value > -1, 'data-key': 'retention hours' });
  const hours = h('input', { type: 'number', min: '0', step: 'any', value: value > -1 ? value / HOUR_MS : '', 'aria-label': 'Hours', 'data-key': 'hours' });
  hours.addEventListener('input', () => { some.input.checked = true; });
  return {
    node: h('fieldset', {}, h('legend', {}, 'Offsets are kept without members'), server.node, ever.node, h('div', { class: 'choice-with' }, some.node, hours)),
    read() {
      if (server.input.checked) return null;
      if (ever.input.checked) return -1;
      const wanted = Number(hours.value);
      if (hours.value.trim() === '' || !(wanted > 0)) throw new Error('Say for how many hours offsets are kept.');
      return Math.round(wanted * HOUR_MS);
    },
  };
}
