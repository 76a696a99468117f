package traffic

import "context"

func AdjustNow(ctx context.Context, r *Recorder) {
	r.pack(false)
	r.adjust(ctx)
}

func PackNow(r *Recorder) { r.pack(false) }
