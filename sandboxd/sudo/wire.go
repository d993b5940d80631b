package sudo

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

const (
	// Socket is where sandboxd listens; only root can write to its folder.
	Socket = "/run/sandboxd/sudo.sock"
	// maxRequest is more than the kernel accepts as arguments and variables of a program
	// (2 MiB), in base64.
	maxRequest = 4 << 20
	// streams is how many descriptors come with a request.
	streams = 3
)

// request is the request of a client. Its contents are not checked: a user that may use sudo
// may run anything.
type request struct {
	options
	Env lines  // of the client
	Dir string // the client's working directory
}

// answer is the answer to a request: an error, or the exit code.
type answer struct {
	Error string `json:",omitempty"`
	Code  int
}

// lines are arguments or variables. They need not be UTF-8, so JSON has them in base64.
type lines []string

func (l lines) MarshalJSON() ([]byte, error) {
	raw := make([][]byte, len(l))
	for i, line := range l {
		raw[i] = []byte(line)
	}
	return json.Marshal(raw)
}

func (l *lines) UnmarshalJSON(text []byte) error {
	var raw [][]byte
	if err := json.Unmarshal(text, &raw); err != nil {
		return err
	}
	*l = nil
	for _, line := range raw {
		*l = append(*l, string(line))
	}
	return nil
}

// send writes the length of the request with the descriptors, then the request.
func send(conn *net.UnixConn, r request, files [streams]*os.File) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if len(text) > maxRequest {
		return errors.New("the arguments and variables are too long")
	}
	var rights []int
	for _, f := range files {
		rights = append(rights, int(f.Fd()))
	}
	length := binary.BigEndian.AppendUint32(nil, uint32(len(text)))
	if _, _, err := conn.WriteMsgUnix(length, unix.UnixRights(rights...), nil); err != nil {
		return err
	}
	_, err = conn.Write(text)
	return err
}

// receive reads a request. The caller closes the files, also after an error.
func receive(conn *net.UnixConn) (r request, files []*os.File, err error) {
	length, control := make([]byte, 4), make([]byte, unix.CmsgSpace(streams*4))
	n, controls, _, _, err := conn.ReadMsgUnix(length, control)
	if err != nil {
		return r, nil, err
	}
	if files, err = received(control[:controls]); err != nil {
		return r, files, err
	}
	size := int64(binary.BigEndian.Uint32(length))
	if n != len(length) || len(files) != streams || size > maxRequest {
		return r, files, fmt.Errorf("a request begins with its length, %d at most, and %d descriptors", maxRequest, streams)
	}
	text, err := io.ReadAll(io.LimitReader(conn, size))
	if err != nil {
		return r, files, err
	}
	return r, files, json.Unmarshal(text, &r)
}

// received returns the files of a control message.
func received(control []byte) (files []*os.File, err error) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return nil, err
	}
	for _, m := range messages {
		rights, err := unix.ParseUnixRights(&m)
		if err != nil {
			return files, err
		}
		for _, fd := range rights {
			files = append(files, os.NewFile(uintptr(fd), "stream"))
		}
	}
	return files, nil
}
