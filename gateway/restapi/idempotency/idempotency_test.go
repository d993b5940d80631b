package idempotency

import (
	"errors"
	"fmt"
	"testing"
)

func TestAnswersAreBounded(t *testing.T) {
	a := New()
	run := func(team, key string) (body string) {
		got, err := a.Once(t.Context(), team, key, [32]byte{}, func() ([]byte, error) { return []byte(team + key), nil })
		return fmt.Sprint(string(got), err)
	}
	for i := range answersPerTeam + 5 {
		run("big", fmt.Sprint(i))
	}
	run("small", "x")
	team, _ := a.done.Get("big")
	if team.Len() != answersPerTeam || len(a.running) != 0 || a.done.Len() != 2 {
		t.Errorf("kept %d answers, %d running, %d teams", team.Len(), len(a.running), a.done.Len())
	}
	_, err := a.Once(t.Context(), "small", "x", [32]byte{1}, func() ([]byte, error) { return nil, errors.New("run") })
	if !errors.Is(err, ErrKeyReused) {
		t.Errorf("the small team's answer is gone: %v", err)
	}
	for i := range teamsWithAnswers + 5 {
		run(fmt.Sprint(i), "x")
	}
	if n := a.done.Len(); n != teamsWithAnswers {
		t.Errorf("%d teams", n)
	}
}
