package main

import "github.com/anishathalye/porcupine"

// A number that was given, but told to nobody: to a call whose answer was lost.
const untold = -1

// The topic with this id is there, or none (0). Ids are given in order, so no id comes twice.
type topic struct{ id, last int }

func (t topic) seen(id int) []any {
	if t.id == id || (t.id == untold && id > t.last) {
		return []any{topic{id, max(t.last, id)}}
	}
	return nil
}

func topicModel() porcupine.Model {
	model := porcupine.NondeterministicModel{
		Init: func() []any { return []any{topic{}} },
		Step: func(state, input, _ any) []any {
			t, operation := state.(topic), input.(Operation)
			switch {
			case operation.Unknown && operation.Kind == "create" && t.id == 0:
				return []any{t, topic{untold, t.last}}
			case operation.Unknown && operation.Kind == "delete":
				return []any{t, topic{0, t.last}}
			case operation.Unknown:
				return []any{t}
			case operation.Result == "topic_not_found":
				if t.id != 0 {
					return nil
				}
				return []any{t}
			case operation.Kind == "delete" && t.id == 0:
				return nil
			case operation.Kind == "delete":
				return []any{topic{0, t.last}}
			case operation.Result == "201":
				if t.id != 0 || operation.Offset <= t.last {
					return nil
				}
				return []any{topic{operation.Offset, operation.Offset}}
			}
			return t.seen(operation.Offset)
		},
	}
	return model.ToModel()
}

// Who holds the lease, since which take, with which generation; a generation is never given twice.
type lease struct {
	holder                 string
	generation, take, last int
}

func (l lease) is(who string, generation int) bool {
	return l.holder == who && (l.generation == generation || l.generation == untold && generation > l.last)
}

func (l lease) taken(operation Operation) []any {
	generation := operation.Offset
	again := l.is(operation.Who, generation)
	anew := (l.holder == "" || l.holder == operation.Who) && generation > l.last
	if !again && !anew {
		return nil
	}
	return []any{lease{operation.Who, generation, operation.Take, max(l.last, generation)}}
}

func (l lease) after(operation Operation) []any {
	free := lease{last: l.last}
	switch {
	case operation.Kind == "expire":
		if l.take != operation.Take || l.holder == "" {
			return []any{l}
		}
		return []any{free}
	case operation.Result == "lease_held":
		if l.holder == "" || l.holder == operation.Who {
			return nil
		}
		return []any{l}
	case operation.Result == "stale_generation":
		if l.holder == operation.Who && l.generation == operation.Offset {
			return nil
		}
		return []any{l}
	case operation.Unknown && operation.Kind == "take":
		if l.holder != "" && l.holder != operation.Who {
			return []any{l}
		}
		renewed := lease{operation.Who, l.generation, operation.Take, l.last}
		return []any{l, renewed, lease{operation.Who, untold, operation.Take, l.last}}
	case operation.Kind == "take":
		return l.taken(operation)
	case l.is(operation.Who, operation.Offset): // it returns it
		return perhaps(operation, l, lease{last: max(l.last, operation.Offset)})
	case operation.Unknown:
		return []any{l}
	}
	return nil
}

func leaseModel() porcupine.Model {
	model := porcupine.NondeterministicModel{
		Init: func() []any { return []any{lease{}} },
		Step: func(state, input, _ any) []any { return state.(lease).after(input.(Operation)) },
	}
	return model.ToModel()
}
