import type { UseInfiniteQueryResult } from '@tanstack/react-query';
import { DataTable, type TableProps } from './DataTable';
import { Query } from './Query';
import { ShowMore } from './ShowMore';

interface Props<Row> extends Omit<TableProps<Row>, 'rows'> {
  list: UseInfiniteQueryResult<Row[]>;
  noun: string;
  none: React.ReactNode;
}

export function ListTable<Row>({ list, noun, none, ...table }: Props<Row>) {
  return (
    <Query query={list}>
      {(rows) =>
        rows.length === 0 ? (
          none
        ) : (
          <>
            <DataTable {...table} rows={rows} />
            <ShowMore list={list} rows={rows} noun={noun} />
          </>
        )
      }
    </Query>
  );
}
