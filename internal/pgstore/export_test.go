package pgstore

// ReadInPagesOf makes Read use smaller pages, so that a test need not write thousands of rows.
func (s *Store) ReadInPagesOf(rows int32) { s.pageSize = rows }
