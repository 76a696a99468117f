-- name: BatchWritten :execrows
-- One row if the batch was not written before. Waits for another transaction that is writing it.
INSERT INTO recorder_batch (writer_id, batch_seq)
VALUES (sqlc.arg(writer_id), sqlc.arg(batch_seq))
ON CONFLICT (writer_id, batch_seq) DO NOTHING;
