// The API under /v1: one way to ask, errors as problems, the token where one is needed.

/** What the server, or the way to it, had against a request. */
export class Problem extends Error {
  constructor(status, title, detail) {
    super(detail || title);
    this.status = status;
    this.title = title;
  }
}

const TOKEN = 'convoke.token';
let askForToken = async () => null;

/** What asks the user for the token; resolves to it, or to null. */
export function onTokenNeeded(ask) {
  askForToken = ask;
}

function token() {
  try {
    return sessionStorage.getItem(TOKEN);
  } catch {
    return null;
  }
}

function keepToken(value) {
  try {
    sessionStorage.setItem(TOKEN, value);
  } catch {
    // no storage: it is asked for each time
  }
}

/** A body that is JSON already and is sent as it stands: numbers beyond 2^53 would not survive being read here. */
export class Raw {
  constructor(text) {
    this.text = text;
  }
}

async function send(method, path, body, signal, secret) {
  const headers = { accept: 'application/json' };
  if (method !== 'GET') headers['content-type'] = 'application/json';
  if (secret) headers.authorization = `Bearer ${secret}`;
  try {
    return await fetch(path, {
      method,
      headers,
      body: body instanceof Raw ? body.text : body === undefined ? undefined : JSON.stringify(body),
      signal,
      cache: 'no-store',
      credentials: 'same-origin',
    });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new Problem(0, 'No answer', method === 'GET'
      ? 'The server does not answer. Is it running?'
      : 'The answer did not come. The server may still have done what was asked: look at the group before you try again.');
  }
}

async function problem(response) {
  const text = await response.text().catch(() => '');
  try {
    const document = JSON.parse(text);
    return new Problem(response.status, document.title ?? response.statusText, document.detail ?? '');
  } catch {
    return new Problem(response.status, response.statusText || `HTTP ${response.status}`, text.slice(0, 500));
  }
}

/** Asks, and answers with the text. Throws a `Problem`. */
export async function callText(method, path, body, { signal } = {}) {
  let response = await send(method, path, body, signal, token());
  if (response.status === 401) {
    const secret = await askForToken(await problem(response));
    if (!secret) throw new Problem(401, 'Token needed', 'This server lets only those change things who know its token.');
    keepToken(secret);
    response = await send(method, path, body, signal, secret);
  }
  if (!response.ok) throw await problem(response);
  return response.text();
}

/** Asks, and answers with what the JSON says; null for nothing. Throws a `Problem`. */
export async function call(method, path, body, options) {
  const text = await callText(method, path, body, options);
  if (text === '') return null;
  try {
    return JSON.parse(text);
  } catch {
    throw new Problem(200, 'Not understood', `The answer to ${method} ${path} is not JSON.`);
  }
}

/** Reads. */
export const get = (path, options) => call('GET', path, undefined, options);

/** The path of a group, and of what is below it. */
export function groupPath(id, rest = '') {
  return `/v1/groups/${encodeURIComponent(id)}${rest}`;
}

/** A path with a query; what is null or empty is left out. */
export function query(path, parameters) {
  const set = Object.entries(parameters).filter(([, value]) => value !== null && value !== undefined && value !== '');
  const search = new URLSearchParams(set).toString();
  return search === '' ? path : `${path}?${search}`;
}
