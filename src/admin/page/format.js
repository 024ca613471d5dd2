// Numbers, times and partitions as people read them.

import { h } from './dom.js';

/** 1234567 as 1,234,567. */
export function number(value) {
  return value === null || value === undefined ? '–' : Number(value).toLocaleString('en');
}

/** `1 member`, `2 members`. */
export function count(value, one, many = `${one}s`) {
  return `${number(value)} ${value === 1 ? one : many}`;
}

/** Milliseconds in the unit that fits. */
export function duration(ms) {
  if (ms === null || ms === undefined) return '–';
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(ms < 10_000 ? 1 : 0)} s`;
  if (ms < 3_600_000) return `${trim(ms / 60_000)} min`;
  if (ms < 172_800_000) return `${trim(ms / 3_600_000)} h`;
  return `${trim(ms / 86_400_000)} days`;
}

function trim(value) {
  return value < 10 ? value.toFixed(1).replace(/\.0$/, '') : Math.round(value).toLocaleString('en');
}

/** A moment as day and time, in the reader's time zone. */
export function moment(ms) {
  const date = new Date(ms);
  if (Number.isNaN(date.getTime())) return String(ms);
  const two = (n) => String(n).padStart(2, '0');
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  return `${day} ${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

function since(ms) {
  const gone = Date.now() - ms;
  if (gone < 0) return `in ${duration(-gone)}`;
  if (gone < 2000) return 'now';
  if (gone < 60_000) return `${Math.floor(gone / 1000)} s ago`;
  return `${duration(gone)} ago`;
}

/** How long ago, kept right by `tick`; the moment itself is in the tooltip. */
export function ago(ms) {
  if (ms === null || ms === undefined) return h('span', { class: 'faint' }, 'never');
  const exact = moment(ms);
  const date = new Date(ms);
  const machine = Number.isNaN(date.getTime()) ? null : date.toISOString();
  return h('time', { datetime: machine, title: exact, 'data-ago': ms }, since(ms));
}

/** Brings every `ago` on the page up to date. */
export function tick() {
  for (const element of document.querySelectorAll('time[data-ago]')) {
    const text = since(Number(element.dataset.ago));
    if (element.textContent !== text) element.textContent = text;
  }
}

/** [0,1,2,5] as `0–2, 5`. */
export function ranges(partitions) {
  const sorted = [...partitions].sort((a, b) => a - b);
  const parts = [];
  for (let i = 0; i < sorted.length;) {
    let j = i;
    while (j + 1 < sorted.length && sorted[j + 1] <= sorted[j] + 1) j += 1;
    parts.push(i === j ? `${sorted[i]}` : `${sorted[i]}–${sorted[j]}`);
    i = j + 1;
  }
  return parts.join(', ');
}

/** `0, 3, 5-7` as [0,3,5,6,7]; null for none or `all`. Throws a sentence where it makes no sense. */
export function parseRanges(text) {
  const wanted = text.trim();
  if (wanted === '' || wanted.toLowerCase() === 'all') return null;
  const found = new Set();
  for (const part of wanted.split(',')) {
    const match = /^\s*(\d{1,9})(?:\s*[-–]\s*(\d{1,9}))?\s*$/.exec(part);
    if (!match) throw new Error(`“${part.trim()}” is no partition; write, for example, 0, 3, 5-7.`);
    const [from, to] = [Number(match[1]), Number(match[2] ?? match[1])];
    if (to < from || to - from > 100_000) throw new Error(`“${part.trim()}” is no range of partitions.`);
    for (let p = from; p <= to; p += 1) found.add(p);
  }
  return [...found].sort((a, b) => a - b);
}

/** Order of names: by code unit, as the server has it, without a language's rules. */
export function compare(a, b) {
  return a < b ? -1 : a > b ? 1 : 0;
}
