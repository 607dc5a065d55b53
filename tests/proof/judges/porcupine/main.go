// Reads registers as JSON from the standard input, asks Porcupine whether the operations of each can
// be ordered, and answers with those whose operations cannot, the smallest first.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"time"

	"github.com/anishathalye/porcupine"
)

// Operation has the fields of the class of the same name in ../registers.py.
type Operation struct {
	Call, Back              int64
	Kind                    string
	Unknown                 bool
	Offset, End, Next       int
	Rows                    []int
	Place, Take, Port, Dead int
	Who, Result             string
}

// UnmarshalJSON knows the values of the fields that are left out.
func (o *Operation) UnmarshalJSON(text []byte) error {
	type plain Operation
	found := plain{Offset: -1, End: -1, Next: -1}
	err := json.Unmarshal(text, &found)
	*o = Operation(found)
	return err
}

type Register struct {
	Name, Model string
	Operations  []Operation
	Compacted   bool
	Keys        []ValueKey
	Removed     []int
}

// ValueKey is the record key of a value, and whether the value is a tombstone.
type ValueKey struct {
	Key       string
	Tombstone bool
}

func (k *ValueKey) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, &[]any{&k.Key, &k.Tombstone})
}

// Finding is about a register whose operations cannot be ordered, or for which the time did not
// suffice. Ordered: how many of them can be, at most; Stuck: the first that fits nowhere then.
type Finding struct {
	Name       string `json:"name"`
	Operations int    `json:"operations"`
	Ordered    int    `json:"ordered"`
	Stuck      string `json:"stuck"`
}

// Answer counts the operations of the registers that were decided.
type Answer struct {
	Registers  int       `json:"registers"`
	Operations int       `json:"operations"`
	Illegal    []Finding `json:"illegal"`
	Undecided  []Finding `json:"undecided"`
}

// The model of the register. It may leave out operations that cannot have happened.
func modelOf(register *Register) porcupine.Model {
	switch register.Model {
	case "log":
		return logModel(register)
	case "offset":
		return offsetModel()
	case "key":
		return keyModel()
	case "topic":
		return topicModel()
	case "lease":
		return leaseModel()
	case "queue":
		return queueModel(*register)
	}
	panic("no such model: " + register.Model)
}

// An operation for people: what it has of the things that operations have.
func told(o Operation) string {
	rows := o.Rows
	if len(rows) > 12 {
		rows = rows[:12]
	}
	return fmt.Sprintf("%s %s at %.6f to %.6f s: offset %d, end %d, next %d, rows %v, place %d, take %d, port %d, %q, %d dead",
		o.Who, o.Kind, float64(o.Call)/1e9, float64(o.Back)/1e9, o.Offset, o.End, o.Next, rows, o.Place, o.Take, o.Port,
		o.Result, o.Dead)
}

// The first operation, by its return, that the longest order found does not have.
func explain(register Register, history []porcupine.Operation, info porcupine.LinearizationInfo) Finding {
	found := Finding{Name: register.Name, Operations: len(history)}
	var longest []int
	for _, order := range info.PartialLinearizations()[0] {
		if len(order) > len(longest) {
			longest = order
		}
	}
	found.Ordered = len(longest)
	ordered := make(map[int]bool)
	for _, id := range longest {
		ordered[id] = true
	}
	stuck := -1
	for id, operation := range history {
		if !ordered[id] && (stuck < 0 || operation.Return < history[stuck].Return) {
			stuck = id
		}
	}
	if stuck >= 0 {
		found.Stuck = told(register.Operations[stuck])
	}
	return found
}

func main() {
	var registers []Register
	if err := json.NewDecoder(os.Stdin).Decode(&registers); err != nil {
		panic(err)
	}
	seconds := 20 * time.Second // for each register
	answer := Answer{Registers: len(registers), Illegal: []Finding{}, Undecided: []Finding{}}
	for _, register := range registers {
		model := modelOf(&register)
		history := make([]porcupine.Operation, len(register.Operations))
		for i, operation := range register.Operations {
			history[i] = porcupine.Operation{Input: operation, Call: operation.Call, Return: operation.Back}
		}
		switch porcupine.CheckOperationsTimeout(model, history, seconds) {
		case porcupine.Illegal:
			// The operations of an order are collected only for those that have none: that costs more.
			_, info := porcupine.CheckOperationsVerbose(model, history, seconds)
			answer.Illegal = append(answer.Illegal, explain(register, history, info))
		case porcupine.Unknown:
			answer.Undecided = append(answer.Undecided, Finding{Name: register.Name, Operations: len(history)})
			continue
		}
		answer.Operations += len(history)
	}
	sort.SliceStable(answer.Illegal, func(i, j int) bool {
		return answer.Illegal[i].Operations < answer.Illegal[j].Operations
	})
	if err := json.NewEncoder(os.Stdout).Encode(answer); err != nil {
		panic(err)
	}
}
