package main

import "github.com/anishathalye/porcupine"

// What may have happened, or not: the state that it leaves, and the one that was there.
func perhaps(operation Operation, before, after any) []any {
	if operation.Unknown {
		return []any{before, after}
	}
	return []any{after}
}

// The committed offset of a group on a topic: commits go forward, resets anywhere.
func offsetModel() porcupine.Model {
	model := porcupine.NondeterministicModel{
		Init: func() []any { return []any{0} },
		Step: func(state, input, _ any) []any {
			committed, operation := state.(int), input.(Operation)
			switch {
			case operation.Kind == "differs" && operation.End == committed:
				return nil
			case operation.Kind == "differs":
				return []any{state}
			case operation.End >= 0 && operation.End != committed: // only from there
				if operation.Unknown {
					return []any{state}
				}
				return nil
			case operation.Kind == "look" && operation.Offset != committed:
				return nil
			case operation.Kind == "look":
				return []any{state}
			case operation.Kind == "commit" && operation.Offset < committed:
				if operation.Unknown {
					return []any{state}
				}
				return nil
			}
			return perhaps(operation, state, operation.Offset)
		},
	}
	return model.ToModel()
}

// An API key is let in until it is revoked.
func keyModel() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return true },
		Step: func(state, input, _ any) (bool, any) {
			if input.(Operation).Kind == "use" {
				return state.(bool), state
			}
			return true, false
		},
	}
}
