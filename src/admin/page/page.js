// The shell of the page: which view is shown, the theme, whether it is live, the token.

import { Problem, onTokenNeeded } from './api.js';
import { openDialog } from './dialog.js';
import { button, field, fill, h, setText } from './dom.js';
import { tick } from './format.js';
import { groupView } from './group.js';
import { listView } from './list.js';
import { follow } from './live.js';

const main = document.getElementById('main');
let view = null;
let shown = '';

// ---------------------------------------------------------------- views

/** `#/groups/ID/TAB?…` as its parts; null where it cannot be read. */
function parse(hash) {
  const [path, search = ''] = hash.replace(/^#\/?/, '').split('?', 2);
  const parts = path.split('/');
  try {
    if (parts[0] === 'groups' && parts.length >= 2) {
      return { view: 'group', id: decodeURIComponent(parts[1]), tab: parts[2] ?? '', key: `group ${parts[1]}` };
    }
  } catch {
    return null;
  }
  return path === '' ? { view: 'list', search: new URLSearchParams(search), key: 'list' } : null;
}

function show() {
  if (location.hash === '#main') return;
  const place = parse(location.hash);
  if (place && place.key === shown) {
    view.go?.(place);
    return;
  }
  const first = shown === '';
  view?.close?.();
  shown = place?.key ?? 'nowhere';
  main.replaceChildren();
  if (!place) view = nowhere();
  else if (place.view === 'group') view = groupView(main, place);
  else view = listView(main, place);
  for (const link of document.querySelectorAll('[data-nav]')) {
    if (place?.view === 'list') link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
  if (!first) {
    window.scrollTo(0, 0);
    (main.querySelector('h1') ?? main).focus({ preventScroll: true });
  }
}

function nowhere() {
  document.title = 'Not found – Convoke';
  fill(main, h('h1', { tabindex: '-1' }, 'Nothing here'), h('p', {}, 'There is no such view. ', h('a', { href: '#/' }, 'All groups'), '.'));
  return {};
}

document.querySelector('.skip').addEventListener('click', (event) => {
  event.preventDefault();
  main.focus();
});

// ---------------------------------------------------------------- theme

const THEMES = ['system', 'light', 'dark'];
const themeButton = document.getElementById('theme');

function theme() {
  return document.documentElement.dataset.theme ?? 'system';
}

function nameTheme() {
  setText(themeButton, `Theme: ${theme()}`);
}

themeButton.addEventListener('click', () => {
  const next = THEMES[(THEMES.indexOf(theme()) + 1) % THEMES.length];
  if (next === 'system') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  try {
    localStorage.setItem('convoke.theme', next);
  } catch {
    // it holds for this page then
  }
  nameTheme();
});
nameTheme();

// ---------------------------------------------------------------- live

const STANDINGS = {
  live: 'Live',
  polling: 'Asking every 5 s',
  paused: 'Paused',
};

follow(
  (ids) => view?.changed?.(ids),
  (word) => {
    document.getElementById('live').dataset.state = word;
    setText(document.getElementById('live-text'), STANDINGS[word]);
  },
);
setInterval(tick, 1000);

// ---------------------------------------------------------------- token

let asking = null;

onTokenNeeded((problem) => {
  asking ??= new Promise((resolve) => {
    const input = h('input', { type: 'password', autocomplete: 'off', required: true });
    let secret = null;
    const dialog = openDialog('Token needed', () => {
      asking = null;
      resolve(secret);
    });
    const form = h('form', { method: 'dialog' },
      h('p', {}, problem instanceof Problem && problem.message ? problem.message : 'This server lets only those change things who know its token.'),
      field('Token', input, 'What stands in the file of --http-token-file. It is kept until this tab is closed.'),
      h('p', { class: 'buttons' }, h('button', { type: 'submit', class: 'primary' }, 'Go on'), button('Cancel', () => dialog.close())));
    form.addEventListener('submit', (event) => {
      event.preventDefault();
      secret = input.value.trim() || null;
      dialog.close();
    });
    dialog.show(form);
    input.focus();
  });
  return asking;
});

window.addEventListener('hashchange', show);
show();
