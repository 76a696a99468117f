/**
 * The titles and leads of the screens that people open first. index.html shows them before the UI has arrived, and the
 * screens begin with them.
 */
export const headings = {
  overview: {
    title: 'Overview',
    lead: 'Checks and denials in this time, what shadow rules would deny, and whether all parts work.',
  },
  plans: { title: 'Plans', lead: 'The limits of each plan. Changes are saved together.' },
  rules: {
    title: 'Rules',
    lead: 'A request is allowed only if every active rule that matches allows it.',
  },
  violations: {
    title: 'Violations',
    lead: 'Checks that rules denied, or that shadow rules would have denied.',
  },
  users: {
    title: 'Users',
    lead: 'User ids that your services send. Users without an assigned plan are on the default plan.',
  },
  overrides: { title: 'Overrides', lead: 'Users with their own limit instead of a rule’s.' },
  replays: {
    title: 'Replays',
    lead: 'Who would have been denied by other limits: recorded checks, decided again by the code that decides.',
  },
  try: {
    title: 'Try it',
    lead: 'See how a check would be decided, and why. Nothing is sent: it takes no tokens and is not counted.',
  },
};
