package main

import (
	"maps"
	"slices"

	"github.com/anishathalye/porcupine"
)

// A log is a list of values that only grows: its state is where it ends. What has which offset is
// known from the last read of it; of a compacted one, also from every answer that names offsets.
type log struct {
	compacted bool
	keys      []ValueKey
	slots     map[int]int
	filled    []int          // the offsets of slots, in order
	newest    map[string]int // the newest offset of each record key
	end       int
}

func newLog(register Register) *log {
	made := &log{compacted: register.Compacted, keys: register.Keys, slots: map[int]int{}}
	fill := func(offset, value int) {
		if _, known := made.slots[offset]; !known {
			made.slots[offset] = value
		}
	}
	for _, kind := range []string{"final", "append", "read", "table"} {
		for _, operation := range register.Operations {
			if operation.Kind != kind || (kind != "final" && !made.compacted) {
				continue
			}
			if kind != "append" {
				for i := 0; i < len(operation.Rows); i += 2 {
					fill(operation.Rows[i], operation.Rows[i+1])
				}
				continue
			}
			for i, value := range operation.Rows {
				if operation.Offset >= 0 {
					fill(operation.Offset+i, value)
				}
			}
		}
	}
	made.filled = slices.Sorted(maps.Keys(made.slots))
	if len(made.filled) > 0 {
		made.end = made.filled[len(made.filled)-1] + 1
	}
	made.newest = made.newestOf(made.filled, func(offset int) int { return made.slots[offset] })
	return made
}

func (l *log) newestOf(offsets []int, value func(int) int) map[string]int {
	found := map[string]int{}
	if l.compacted {
		for _, offset := range offsets {
			key := l.keys[value(offset)].Key
			found[key] = max(found[key], offset)
		}
	}
	return found
}

// The first offset from n on of which something is known.
func (l *log) next(n int) int {
	i, _ := slices.BinarySearch(l.filled, n)
	if i == len(l.filled) {
		return n
	}
	return l.filled[i]
}

// Whether the log may have grown from n to end by records of which nothing is known any more.
func (l *log) grows(n, end int) bool {
	return n == end || (l.compacted && end > n && (l.next(n) >= end || l.next(n) == n && n >= l.end))
}

func (l *log) holds(offset int, values []int) bool {
	for i, value := range values {
		if found, known := l.slots[offset+i]; !known || found != value {
			return false
		}
	}
	return true
}

// Whether these rows, in order, are what the log has from the operation's offset to its next one.
func (l *log) shows(operation Operation) bool {
	expected := operation.Offset
	for i := 0; i < len(operation.Rows); i += 2 {
		offset, value := operation.Rows[i], operation.Rows[i+1]
		if offset < expected || offset >= operation.Next || !l.holds(offset, []int{value}) {
			return false
		}
		if !l.mayLack(expected, offset) {
			return false
		}
		expected = offset + 1
	}
	return l.mayLack(expected, operation.Next)
}

// Compaction removes what a newer record of its key supersedes, and tombstones.
func (l *log) mayLack(first, end int) bool {
	if !l.compacted {
		return first == end
	}
	i, _ := slices.BinarySearch(l.filled, first)
	for ; i < len(l.filled) && l.filled[i] < end; i++ {
		key := l.keys[l.slots[l.filled[i]]]
		if !key.Tombstone && l.newest[key.Key] == l.filled[i] {
			return false
		}
	}
	return true
}

// The newest record of each key is that of the log, unless it is a tombstone, which may be gone with
// all that it deletes.
func (l *log) keepsNewest(operation Operation) bool {
	values := map[int]int{}
	for i := 0; i < len(operation.Rows); i += 2 {
		values[operation.Rows[i]] = operation.Rows[i+1]
	}
	offsets := slices.Sorted(maps.Keys(values))
	found := l.newestOf(offsets, func(offset int) int { return values[offset] })
	for key, offset := range l.newest {
		there, has := found[key]
		if l.keys[l.slots[offset]].Tombstone && !has {
			continue
		}
		if !has || there != offset {
			return false
		}
	}
	return true
}

// Whether anything is known of an append, which was answered or whose values somebody saw.
func (l *log) happened(seen map[int]bool, operation Operation) bool {
	return operation.Kind != "append" || !operation.Unknown ||
		slices.ContainsFunc(operation.Rows, func(value int) bool { return seen[value] })
}

// Without the appends of which nothing is known: Porcupine would try every set of them.
func logModel(register *Register) porcupine.Model {
	l := newLog(*register)
	seen := map[int]bool{}
	for _, value := range l.slots {
		seen[value] = true
	}
	register.Operations = slices.DeleteFunc(register.Operations, func(operation Operation) bool {
		return !l.happened(seen, operation)
	})
	step := func(state, input, _ any) (bool, any) {
		n, operation := state.(int), input.(Operation)
		switch operation.Kind {
		case "append":
			offset, count := operation.Offset, len(operation.Rows)
			if offset < 0 {
				offset = l.next(n)
			}
			if l.grows(n, offset) && l.holds(offset, operation.Rows) {
				return true, offset + count
			}
			// A tombstone of the same key may have been another one.
			return operation.Unknown && l.compacted && n >= l.end, n
		case "final":
			if l.compacted {
				return n >= l.end && l.shows(operation) && l.keepsNewest(operation), n
			}
			return n == l.end && l.shows(operation), n
		}
		if operation.End < 0 {
			return (l.compacted || n >= operation.Next) && l.shows(operation), n
		}
		return l.grows(n, operation.End) && operation.Next <= operation.End && l.shows(operation), operation.End
	}
	return porcupine.Model{Init: func() any { return 0 }, Step: step, Hash: func(s any) uint64 { return uint64(s.(int)) }}
}
