import { screen } from '@testing-library/react';
import { createPortal } from 'react-dom';
import { expect, test, vi } from 'vitest';
import { show } from '../../test/render';
import { type Column, DataTable } from './DataTable';
import { sorted } from './sorted';

interface Row {
  id: number;
}
const columns: Column<Row>[] = [{ key: 'id', header: 'Id', numeric: true, sortable: true, render: (row) => row.id }];
const rows = (count: number) => Array.from({ length: count }, (_, index) => ({ id: index + 1 }));

test('arrows walk the rows, Home and End jump, Enter opens', async () => {
  const onOpen = vi.fn();
  const { user } = show(
    <DataTable label="Things" columns={columns} rows={rows(5)} rowKey={(row) => row.id} onOpen={onOpen} />,
  );
  await user.tab();
  expect(screen.getAllByRole('button')).toHaveLength(5);
  await user.keyboard('{ArrowDown}{ArrowDown}');
  await user.keyboard('{Enter}');
  expect(onOpen).toHaveBeenLastCalledWith({ id: 3 });
  await user.keyboard('{End}');
  await user.keyboard('{Enter}');
  expect(onOpen).toHaveBeenLastCalledWith({ id: 5 });
});

test('a click in a row opens it, and one in a dialog that a cell opened does not', async () => {
  const onOpen = vi.fn();
  const dialog = createPortal(<p>Silence it until</p>, document.body);
  const state = { key: 'state', header: 'State', render: () => <span>Firing {dialog}</span> };
  const { user } = show(
    <DataTable label="Things" columns={[...columns, state]} rows={rows(1)} rowKey={(row) => row.id} onOpen={onOpen} />,
  );
  await user.click(screen.getByText('Silence it until'));
  expect(onOpen).not.toHaveBeenCalled();
  await user.click(screen.getByText('Firing'));
  expect(onOpen).toHaveBeenCalledOnce();
});

test('ten thousand rows are not all in the document, and are all counted', () => {
  show(<DataTable label="Things" columns={columns} rows={rows(10_000)} rowKey={(row) => row.id} />);
  expect(screen.getAllByRole('row').length).toBeLessThan(100);
  expect(screen.getByRole('table').getAttribute('aria-rowcount')).toBe('10001');
});

test('a press on a header sorts, and another one turns it around', async () => {
  const onSort = vi.fn();
  const table = (sort?: string) => (
    <DataTable label="Things" columns={columns} rows={rows(2)} rowKey={(row) => row.id} sort={sort} onSort={onSort} />
  );
  const { user, rerender } = show(table());
  await user.click(screen.getByRole('button', { name: 'Id' }));
  expect(onSort).toHaveBeenLastCalledWith('-id');
  rerender(table('-id'));
  expect(screen.getByRole('columnheader').getAttribute('aria-sort')).toBe('descending');
  await user.click(screen.getByRole('button', { name: 'Id' }));
  expect(onSort).toHaveBeenLastCalledWith('id');
});

test('sorting reads numbers in texts as numbers', () => {
  const by = { name: (row: { name: string }) => row.name };
  const names = [{ name: 'user 10' }, { name: 'user 9' }];
  expect(sorted(names, 'name', by).map(({ name }) => name)).toEqual(['user 9', 'user 10']);
  expect(sorted(names, 'unknown', by)).toBe(names);
});
