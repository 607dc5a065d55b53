package main

import (
	"strconv"
	"strings"

	"github.com/anishathalye/porcupine"
)

const (
	waiting  = "w"
	acked    = "a"
	rejected = "r"
)

func settled(standing string) bool { return standing == acked || standing == rejected }

// The records of one key in their order: each waits, is settled, or is held by a take, which the
// state names by its number. The places of removed records count neither for the order nor at the end.
type queue struct {
	places  int
	removed map[int]bool
	takes   map[string]Operation
}

func newQueue(register Register) *queue {
	made := &queue{removed: map[int]bool{}, takes: map[string]Operation{}}
	for _, place := range register.Removed {
		made.removed[place] = true
	}
	for _, operation := range register.Operations {
		made.places = max(made.places, operation.Place+1)
		if operation.Kind == "take" {
			made.takes[strconv.Itoa(operation.Take)] = operation
		}
	}
	return made
}

// One worker at a time, until the lease ends or another appliance serves; not before what is earlier.
func (q *queue) take(standings []string, operation Operation) (string, bool) {
	standing := standings[operation.Place]
	holder, held := q.takes[standing]
	if settled(standing) || (held && holder.Port == operation.Port) {
		return "", false
	}
	for place := range operation.Place {
		free := q.removed[place] || q.removed[operation.Place]
		if !free && !settled(standings[place]) {
			return "", false
		}
	}
	return strconv.Itoa(operation.Take), true
}

// What an end of a delivery leaves, and whether it may be answered so.
func (q *queue) ended(standing string, operation Operation) (string, bool) {
	holder, held := q.takes[standing]
	switch operation.Result {
	case "settled":
		return standing, settled(standing)
	case "lease_ended":
		return standing, !held || holder.Who != operation.Who || holder.Port != operation.Port
	}
	if settled(standing) {
		return standing, operation.Unknown
	}
	switch operation.Kind {
	case "ack":
		return acked, true
	case "reject":
		return rejected, true
	case "retry":
		return waiting, true
	}
	return standing, true
}

func (q *queue) after(standings []string, operation Operation) (string, bool) {
	standing := standings[operation.Place]
	switch operation.Kind {
	case "take":
		return q.take(standings, operation)
	case "expire":
		holder, held := q.takes[standing]
		named := operation.Take < 0 && holder.Who == operation.Who && holder.Port == operation.Port
		if held && (named || holder.Take == operation.Take) {
			return waiting, true
		}
		return standing, true
	case "done":
		letters := 0
		if standing == rejected {
			letters = 1
		}
		done := settled(standing) || q.removed[operation.Place]
		return standing, done && letters == operation.Dead
	}
	return q.ended(standing, operation)
}

func queueModel(register Register) porcupine.Model {
	q := newQueue(register)
	model := porcupine.NondeterministicModel{
		Init: func() []any {
			return []any{strings.TrimSuffix(strings.Repeat(waiting+" ", q.places), " ")}
		},
		Step: func(state, input, _ any) []any {
			operation := input.(Operation)
			standings := strings.Split(state.(string), " ")
			after, may := q.after(standings, operation)
			if !may {
				return nil
			}
			standings[operation.Place] = after
			return perhaps(operation, state, strings.Join(standings, " "))
		},
	}
	return model.ToModel()
}
