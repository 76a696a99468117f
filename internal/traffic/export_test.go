package traffic

import "context"

// AdjustNow sets the samples as after usageEvery.
func AdjustNow(ctx context.Context, r *Recorder) {
	r.pack(false)
	r.adjust(ctx)
}

// PackNow packs what is in the buffers.
func PackNow(r *Recorder) { r.pack(false) }
