// Sets light or dark before the first paint. It is a file, because the content security policy
// allows no inline script; theme/ColorScheme.tsx writes what it reads.
(() => {
  let chosen = 'auto';
  try {
    chosen = localStorage.getItem('sluice-color-scheme') || 'auto';
  } catch {
    // no storage: as the system is
  }
  const dark = chosen === 'dark' || (chosen === 'auto' && matchMedia('(prefers-color-scheme: dark)').matches);
  document.documentElement.setAttribute('data-mantine-color-scheme', dark ? 'dark' : 'light');
})();
