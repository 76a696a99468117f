-- name: BatchWritten :execrows
-- No row if the batch was written before.
INSERT INTO recorder_batch (writer_id, batch_seq)
VALUES (sqlc.arg(writer_id), sqlc.arg(batch_seq))
ON CONFLICT (writer_id, batch_seq) DO NOTHING;
