package traffic

import "context"

// AdjustNow adjusts the samples, as usageEvery does.
func AdjustNow(ctx context.Context, r *Recorder) {
	r.pack(false)
	r.adjust(ctx)
}

// PackNow packs the buffers.
func PackNow(r *Recorder) { r.pack(false) }
