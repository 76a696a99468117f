-- name: BatchWritten :execrows
-- One row if the batch was not written before. While another transaction writes it this waits for that one's end.
INSERT INTO recorder_batch (writer_id, batch_seq)
VALUES (sqlc.arg(writer_id), sqlc.arg(batch_seq))
ON CONFLICT (writer_id, batch_seq) DO NOTHING;
