// Runs before the first paint, so that a chosen theme does not flash.
(() => {
  let chosen = null;
  try {
    chosen = localStorage.getItem('convoke.theme');
  } catch {
    // no storage: the system's theme
  }
  if (chosen === 'light' || chosen === 'dark') document.documentElement.dataset.theme = chosen;
})();
