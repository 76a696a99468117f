/** Titles and leads that index.html shows before the UI has arrived. */
export const headings = {
  overview: { title: 'Overview' },
  plans: { title: 'Plans' },
  rules: { title: 'Rules', lead: 'A request is allowed only if every active rule that matches allows it.' },
  violations: { title: 'Violations' },
  users: { title: 'Users', lead: 'Users without an assigned plan are on the default plan.' },
  overrides: { title: 'Overrides' },
  replays: { title: 'Replays', lead: 'Recorded checks, decided again with other limits.' },
  try: { title: 'Try it', lead: 'A preview: it takes no tokens and is not counted.' },
};
