// The build puts this script into index.html, with src/headings.ts and the names of files in it. It runs before the first
// paint.
(() => {
  // Light or dark; theme/theme.ts names the key.
  let chosen = 'auto';
  try {
    chosen = localStorage.getItem('sluice-color-scheme') || 'auto';
  } catch {
    // no storage: as the system is
  }
  const dark = chosen === 'dark' || (chosen === 'auto' && matchMedia('(prefers-color-scheme: dark)').matches);
  document.documentElement.setAttribute('data-mantine-color-scheme', dark ? 'dark' : 'light');

  // The code of the screen. The entry asks for it too, but only once it has arrived and run.
  const { files, of } = CODE;
  const isAt = ([address]) => new RegExp(`^${address.replaceAll('*', '[^/]+')}$`).test(location.pathname);
  const [, places = []] = of.find(isAt) ?? [];
  for (const place of places) {
    const link = document.createElement('link');
    link.rel = 'modulepreload';
    link.crossOrigin = '';
    link.href = `/${files[place]}`;
    document.head.append(link);
  }

  // Its heading, which stays where it is when the screen comes.
  const [, screen] = /^\/t\/[^/]+\/(\w+)$/.exec(location.pathname) ?? [];
  const heading = HEADINGS[screen];
  if (!heading?.title) return;
  document.querySelector('.starting').classList.add('starting-screen');
  document.querySelector('.starting-title').textContent = heading.title;
  if (heading.lead) document.querySelector('.starting-lead').prepend(heading.lead, document.createElement('br'));
})();
