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
	"strconv"
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

// archiveArguments are the arguments of /archive.
type archiveArguments struct {
	// EmptyDirs are where the pod's emptyDir volumes are mounted.
	EmptyDirs []string `json:"emptyDirs"`
	// Environment asks for a first line, before the archive, with the environment that
	// /init set, as a JSON object.
	Environment bool `json:"environment"`
	// Frozen refuses an archive of a sandbox that runs (409): it is for a pod that is to be
	// given up, and may come after a resume.
	Frozen bool `json:"frozen"`
	// Since is the mark of an earlier archive: what was not changed after it is left out.
	Since time.Duration `json:"since"`
}

// markHeader says the mark of an archive.
const markHeader = "Sandlane-Mark"

// archive serves POST /archive: it holds the sandbox still, and answers with the archive of
// its files. If reading the files fails in between, the answer breaks off. The answer's mark lets
// a later archive leave out what this one has.
func (s *Server) archive(caller *caller) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		text, _, ok := caller.Command(w, r, "archive", 0, nil)
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
		s.suspender.log("sandboxd: /archive: %v\n", err)
		if answer.status != 0 {
			panic(http.ErrAbortHandler) // so that the gateway does not take the part for a whole archive
		}
		status := http.StatusInternalServerError
		switch {
		case errors.Is(err, errNotInit):
			status = http.StatusPreconditionFailed
		case errors.Is(err, errNoFreezer), errors.Is(err, errNoLayer), errors.Is(err, archive.ErrUnsupported),
			errors.Is(err, archive.ErrRights), errors.Is(err, archive.ErrMode), errors.Is(err, archive.ErrLink),
			errors.Is(err, archive.ErrFileCaps), errors.Is(err, archive.ErrReplaced), errors.Is(err, fs.ErrPermission):
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
	hold := s.suspender.stopForSnapshot
	if order.Frozen {
		hold = s.suspender.holdFrozen
	}
	return hold(ctx, func(ctx context.Context) error {
		// Nor must such a gateway delay a resume, which ends ctx.
		interrupted := make(chan struct{})
		stop := context.AfterFunc(ctx, func() {
			defer close(interrupted)
			_ = controller.SetWriteDeadline(time.Now()) // the answer breaks off
		})
		defer func() {
			if !stop() {
				<-interrupted // controller must not be used after the handler returns
			}
		}()
		w.Header().Set("Content-Type", "application/x-tar")
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set(markHeader, strconv.FormatInt(int64(s.options.clock.mark()), 10)) // nothing is written any more
		buffer := bufio.NewWriterSize(statusOnWrite{w}, archiveBuffer)
		if order.Environment {
			if err := json.NewEncoder(buffer).Encode(caller.State.Env()); err != nil { // with the end of the line
				return err
			}
		}
		tree.Since = s.options.clock.since(tree.Since)
		if after := s.options.clock.sinceMark(order.Since); after.After(tree.Since) {
			tree.Since = after
		}
		if err := archive.Write(ctx, buffer, tree); err != nil {
			return err
		}
		return buffer.Flush()
	})
}

// statusOnWrite writes status 200 before the first byte of an answer.
type statusOnWrite struct{ *statusWriter }

func (w statusOnWrite) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	return w.ResponseWriter.Write(p)
}

// tree returns the tree of files that archives of this sandbox have, with the emptyDirs of
// its pod.
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
