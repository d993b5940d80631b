package checkpoint

import "testing"

func TestRoom(t *testing.T) {
	f, _ := newFolder(t)
	room, err := f.Room(t.Context())
	if err != nil || room.All <= 0 || room.Free < 0 || room.Free > room.All {
		t.Errorf("%+v, %v", room, err)
	}
}
