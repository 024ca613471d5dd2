// What changes, as it changes: events where they come, asking every few seconds where they do not.

const POLL_MS = 5000;
const RETRY_MS = 30_000;

/** Calls `changed(ids)` with the ids of groups that changed, null for any, and `standing(word)` with `live`, `polling` or
 * `paused`. Nothing is asked while the page is hidden: a browser has few connections to one server. */
export function follow(changed, standing) {
  let source = null;
  let poll = 0;
  let retry = 0;
  let missed = false;

  function open() {
    if (source) return;
    source = new EventSource('/v1/events');
    source.addEventListener('open', () => {
      stopPolling();
      standing('live');
      if (missed) changed(null);
      missed = false;
    });
    source.addEventListener('changed', (event) => {
      let groups = null;
      try {
        groups = JSON.parse(event.data).groups ?? null;
      } catch {
        // not understood: take it that anything may have changed
      }
      changed(groups);
    });
    source.addEventListener('error', () => {
      startPolling();
      // While it connects the browser tries again by itself.
      if (source && source.readyState === EventSource.CLOSED) {
        close();
        clearTimeout(retry);
        retry = setTimeout(open, RETRY_MS);
      }
    });
  }

  function close() {
    source?.close();
    source = null;
  }

  function startPolling() {
    missed = true;
    standing('polling');
    if (!poll) poll = setInterval(() => changed(null), POLL_MS);
  }

  function stopPolling() {
    clearInterval(poll);
    poll = 0;
  }

  document.addEventListener('visibilitychange', () => {
    if (document.hidden) {
      close();
      stopPolling();
      clearTimeout(retry);
      missed = true;
      standing('paused');
    } else {
      open();
    }
  });
  if (!document.hidden) open();
}

/** Runs `work` now or as soon as it may again: never twice at a time, and with rests in between that grow with how long it
 * takes, so that a slow server is not asked more. */
export function paced(work, rest_ms) {
  let running = false;
  let wanted = false;
  let timer = 0;
  let stopped = false;

  async function run() {
    if (stopped) return;
    if (running || timer) {
      wanted = true;
      return;
    }
    running = true;
    wanted = false;
    const began = performance.now();
    try {
      await work();
    } finally {
      running = false;
      const rest = Math.max(rest_ms, 4 * (performance.now() - began));
      timer = setTimeout(() => {
        timer = 0;
        if (wanted) run();
      }, rest);
    }
  }

  run.stop = () => {
    stopped = true;
    clearTimeout(timer);
  };
  return run;
}
