package sandboxd

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"time"

	"github.com/sandlane/sandlane/sandboxd/access"
	"github.com/sandlane/sandlane/sandboxd/archive"
)

const (
	// archiveTimeout bounds how long the sandbox is held still.
	archiveTimeout = 30 * time.Second
	archiveBuffer  = 256 << 10
)

// errNoLayer: sandboxd is not in a container of its own.
var errNoLayer = errors.New("the files of this sandbox cannot be kept: sandboxd is not below its own first process of a container")

// archiveArguments are those of /archive.
type archiveArguments struct {
	// EmptyDirs are where the pod's emptyDir volumes are mounted.
	EmptyDirs []string `json:"emptyDirs"`
	// Environment asks for a first line, before the archive, with the environment that
	// /init set, as a JSON object.
	Environment bool `json:"environment"`
}

// archive serves POST /archive: the sandbox is held still, and the answer is the archive
// of its files. One that fails on the way breaks off.
func (s *Server) archive(caller *caller) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		text, _, ok := caller.Command(w, r, "archive", 0)
		if !ok {
			return
		}
		var order archiveArguments
		if err := json.Unmarshal([]byte(text), &order); err != nil {
			access.Error(w, http.StatusBadRequest, "invalid arguments: "+err.Error())
			return
		}
		answer := &statusWriter{ResponseWriter: w}
		err := s.writeArchive(r.Context(), caller, answer, order)
		if err == nil {
			return
		}
		s.rest.log("sandboxd: /archive: %v\n", err)
		if answer.status != 0 {
			panic(http.ErrAbortHandler) // so that the part is not taken for the whole
		}
		status := http.StatusInternalServerError
		switch {
		case errors.Is(err, errNotInit):
			status = http.StatusPreconditionFailed
		case errors.Is(err, errNoFreezer), errors.Is(err, errNoLayer), errors.Is(err, archive.ErrUnsupported),
			errors.Is(err, archive.ErrRights), errors.Is(err, fs.ErrPermission):
			status = http.StatusNotImplemented
		case errors.Is(err, errOlder):
			status = http.StatusConflict
		case errors.Is(err, errStill):
			status = http.StatusLocked
		}
		access.Error(w, status, err.Error())
	}
}

func (s *Server) writeArchive(ctx context.Context, caller *caller, w *statusWriter, order archiveArguments) error {
	if !caller.Initialised() {
		return errNotInit
	}
	tree, err := s.tree(order.EmptyDirs)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, archiveTimeout)
	defer cancel()
	// A gateway that stops reading must not keep the sandbox still for longer.
	deadline, _ := ctx.Deadline()
	controller := http.NewResponseController(w.ResponseWriter)
	if err := controller.SetWriteDeadline(deadline); err != nil {
		return err
	}
	return s.rest.still(ctx, func(ctx context.Context) error {
		// Nor must it keep a resume waiting, which ends ctx.
		over := make(chan struct{})
		stop := context.AfterFunc(ctx, func() {
			defer close(over)
			_ = controller.SetWriteDeadline(time.Now()) // what was written before is no archive
		})
		defer func() {
			if !stop() {
				<-over // the answer is not used any more
			}
		}()
		w.Header().Set("Content-Type", "application/x-tar")
		w.Header().Set("Cache-Control", "no-store")
		buffer := bufio.NewWriterSize(statusOnWrite{w}, archiveBuffer)
		if order.Environment {
			if err := json.NewEncoder(buffer).Encode(caller.State.Env()); err != nil { // with the end of the line
				return err
			}
		}
		if err := archive.Write(ctx, buffer, tree); err != nil {
			return err
		}
		return buffer.Flush()
	})
}

// statusOnWrite notes the status of an answer that has begun.
type statusOnWrite struct{ *statusWriter }

func (w statusOnWrite) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	return w.ResponseWriter.Write(p)
}

// tree is what archives of this sandbox are of, with the emptyDirs of its pod.
func (s *Server) tree(emptyDirs []string) (archive.Tree, error) {
	if s.options.Layer == nil {
		return archive.Tree{}, errNoLayer
	}
	t := *s.options.Layer
	t.Mounts = slices.Clone(t.Mounts)
	for _, dir := range emptyDirs {
		dir = path.Clean(dir)
		t.Mounts = slices.DeleteFunc(t.Mounts, func(m archive.Mount) bool { return m.Path == dir })
		t.Mounts = append(t.Mounts, archive.Mount{Path: dir, Whole: true})
	}
	return t, nil
}
