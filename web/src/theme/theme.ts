import { createTheme, type MantineColorsTuple } from '@mantine/core';

const sluice: MantineColorsTuple = [
  '#edf3ff',
  '#dbe6fe',
  '#b5cbfb',
  '#8baef8',
  '#6794f5',
  '#4a7ff1',
  '#2f6bea',
  '#2459cc',
  '#1c49ac',
  '#143a8c',
];

const gray: MantineColorsTuple = [
  '#f7f8f9',
  '#f0f2f4',
  '#e6e8eb',
  '#d0d5da',
  '#aeb5bd',
  '#868e98',
  '#646c76',
  '#4a515a',
  '#343a42',
  '#1c2024',
];

const dark: MantineColorsTuple = [
  '#e7eaee',
  '#a2aab4',
  '#8d95a0',
  '#646c76',
  '#383d46',
  '#262a31',
  '#1c1f25',
  '#17191e',
  '#111317',
  '#0d0f12',
];

/** Sizes and distances come from one scale. tokens.css has the outcome colours. */
export const theme = createTheme({
  primaryColor: 'sluice',
  primaryShade: 6,
  colors: { sluice, gray, dark },
  fontFamily: "'Inter Variable', 'Inter fallback', system-ui, sans-serif",
  // A second font would be 40 kB before anything is read.
  fontFamilyMonospace: "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace",
  fontSizes: { xs: '11px', sm: '13px', md: '13px', lg: '14px', xl: '20px' },
  lineHeights: { xs: '16px', sm: '20px', md: '20px', lg: '20px', xl: '28px' },
  spacing: { xs: '4px', sm: '8px', md: '12px', lg: '16px', xl: '24px' },
  radius: { xs: '3px', sm: '4px', md: '6px', lg: '8px', xl: '12px' },
  defaultRadius: 'md',
  headings: { fontWeight: '600' },
  respectReducedMotion: true,
  cursorType: 'pointer',
  // By name, not with extend: a component that the first screen does not have is not loaded for it.
  components: {
    Button: {
      defaultProps: { size: 'sm', fw: 500 },
      vars: () => ({ root: { '--button-height': 'var(--control)', '--button-padding-x': '12px' } }),
    },
    ActionIcon: { defaultProps: { variant: 'subtle', color: 'gray', size: 28 } },
    Input: {
      classNames: { input: 'field' },
      vars: () => ({
        wrapper: { '--input-height': 'var(--control)', '--input-fz': 'var(--control-text)' },
        input: {},
      }),
    },
    InputWrapper: {
      defaultProps: { withAsterisk: false },
      classNames: { label: 'field-label', description: 'field-note', error: 'field-error' },
    },
    Select: { defaultProps: { allowDeselect: false, comboboxProps: { shadow: 'md' } } },
    Menu: { defaultProps: { shadow: 'md', position: 'bottom-start' } },
    Tooltip: {
      defaultProps: { openDelay: 300, fz: 12, events: { hover: true, focus: true, touch: true } },
    },
    Badge: { defaultProps: { tt: 'none', fw: 500, radius: 'sm' } },
    Modal: {
      styles: { title: { fontSize: 14, fontWeight: 600 } },
      defaultProps: {
        closeButtonProps: { 'aria-label': 'Close' },
        centered: true,
        overlayProps: { backgroundOpacity: 0.4 },
        transitionProps: { duration: 120 },
      },
    },
    // A header would be announced for each dialog.
    ModalHeader: { defaultProps: { role: 'presentation' } },
    DrawerHeader: { defaultProps: { role: 'presentation' } },
  },
});

/** Also in starting/starting.js, which runs before the first paint. */
export const colorSchemeKey = 'sluice-color-scheme';
