package snapshot

import (
	"iter"
	"maps"
)

// overlayShare bounds the overlay to a sixteenth of the base: in a table of a million rows a change copies at most
// 62,500.
const overlayShare = 16

type table[K, V comparable] struct {
	base    map[K]V
	overlay map[K]row[V]
	size    int
}

type row[V any] struct {
	value V
	gone  bool
}

func (t *table[K, V]) get(key K) (V, bool) {
	// A lookup in an empty map still computes a hash.
	if len(t.overlay) > 0 {
		if r, ok := t.overlay[key]; ok {
			return r.value, !r.gone
		}
	}
	value, ok := t.base[key]
	return value, ok
}

func (t *table[K, V]) all() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for key, r := range t.overlay {
			if !r.gone && !yield(key, r.value) {
				return
			}
		}
		for key, value := range t.base {
			if _, replaced := t.overlay[key]; !replaced && !yield(key, value) {
				return
			}
		}
	}
}

// tableEdit makes a modified copy; do not edit it after publishing its table.
type tableEdit[K, V comparable] struct {
	table[K, V]
	// ownOverlay, ownBase: the map is not shared with the original.
	changed, ownOverlay, ownBase bool
	seen                         int // rows read, without removals
}

func (e *tableEdit[K, V]) lostRows() bool { return e.seen != e.size }

func editTable[K, V comparable](t table[K, V]) tableEdit[K, V] {
	return tableEdit[K, V]{table: t}
}

func (e *tableEdit[K, V]) set(key K, value V) {
	e.seen++
	held, ok := e.get(key)
	if ok && held == value {
		return
	}
	if !ok {
		e.size++
	}
	e.write(key, row[V]{value: value})
}

func (e *tableEdit[K, V]) remove(key K) {
	if _, ok := e.get(key); ok {
		e.size--
		e.write(key, row[V]{gone: true})
	}
}

func (e *tableEdit[K, V]) write(key K, r row[V]) {
	e.changed = true
	switch {
	case e.ownBase && r.gone:
		delete(e.base, key)
		return
	case e.ownBase:
		e.base[key] = r.value
		return
	case !e.ownOverlay:
		overlay := make(map[K]row[V], len(e.overlay)+1)
		maps.Copy(overlay, e.overlay)
		e.overlay, e.ownOverlay = overlay, true
	}
	e.overlay[key] = r
	if len(e.overlay) > len(e.base)/overlayShare {
		e.merge()
	}
}

func (e *tableEdit[K, V]) merge() {
	base := make(map[K]V, e.size)
	maps.Insert(base, e.all())
	e.base, e.overlay, e.ownBase = base, nil, true
}
