package restapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/ptr"

	"github.com/sandlane/sandlane/gateway/restapi/api"
	"github.com/sandlane/sandlane/routing"
)

const (
	// uploadTimeout bounds one upload. SDKs give up after an hour.
	uploadTimeout = time.Hour

	defaultCPUs     = 2
	defaultMemoryMB = 512
	maxTemplateName = 128
)

// builtName is what a built template may be called: E2B's names, without the dots of pools'.
var builtName = regexp.MustCompile(`^[a-z0-9_-]+$`)

// What a [Builds] says when it refuses. A [RefusedBuildError] says why in words.
var (
	// ErrNoBuild: there is no such build, template or tag in the caller's namespace.
	ErrNoBuild = errors.New("no such build")
	// ErrBuildStarted: the build was started before.
	ErrBuildStarted = errors.New("the build was started before")
	// ErrUploadRefused: the URL of an upload is over, or for something else.
	ErrUploadRefused = errors.New("the URL of the upload is not valid")
	// ErrUploadTooLarge: nothing was kept.
	ErrUploadTooLarge = errors.New("the upload is too large")
	// ErrBuildBytes: the builds of the API key have as many bytes in the registry as they may.
	ErrBuildBytes = errors.New("the limit of bytes of builds is reached")
	// ErrBuildLimit: as many builds of the namespace run, or are kept, as may.
	ErrBuildLimit = errors.New("the limit of builds is reached")
)

// RefusedBuildError is a build that cannot be, for a reason that the client reads.
type RefusedBuildError struct{ Reason string }

func (e *RefusedBuildError) Error() string { return e.Reason }

// BuildRequest is a build to be made.
type BuildRequest struct {
	Name string
	// Tags are those that it gets when it is ready; at least one.
	Tags               []string
	CPUCount, MemoryMB int32
}

// BuildStep is one step of a Recipe.
type BuildStep struct {
	Type  string
	Args  []string
	Files string // the hash that the client gave an upload
	// Force: this step and those after it are done, whatever an earlier build has made.
	Force bool
}

// Recipe is what a build does.
type Recipe struct {
	// Image is the base, or that of the template Template with the tag Tag is.
	Image, Template, Tag string
	// Username and Password are for the image's registry, and are kept nowhere.
	Username, Password string
	Steps              []BuildStep
	// Force: all steps are done, whatever an earlier build has made.
	Force        bool
	Start, Ready string
}

// BuildLogEntry is a line of a build's log.
type BuildLogEntry struct {
	At          time.Time
	Level, Step string
	Text        string
}

// Build is a build as it is now.
type Build struct {
	ID, TemplateID, Name string
	Tags                 []string
	// State is "waiting", "building", "ready" or "error".
	State string
	// Reason and Step say why and where it failed.
	Reason, Step string
	Log          []BuildLogEntry

	CPUCount, MemoryMB   int
	CreatedAt, UpdatedAt time.Time
	FinishedAt           time.Time // zero: it goes on
	// Assigned are the tags that it was given; the build that was given one last has it.
	Assigned []AssignedTag
}

// AssignedTag is a tag that a build was given.
type AssignedTag struct {
	Tag string
	At  time.Time
}

// Builds makes templates from images. It is safe for concurrent use. What is of another
// namespace is ErrNoBuild.
type Builds interface {
	// Request makes a build that waits.
	Request(ctx context.Context, caller routing.KeyOwner, r BuildRequest) (Build, error)
	// Files reports whether an upload for the template is there, and returns what allows one
	// of that hash.
	Files(ctx context.Context, caller routing.KeyOwner, templateID, hash string) (present bool, upload string, err error)
	// Upload keeps what it reads of an upload of size bytes that Files has allowed.
	Upload(ctx context.Context, upload, templateID, hash string, size int64, content io.Reader) error
	// Start starts a build, and returns when that is written.
	Start(ctx context.Context, caller routing.KeyOwner, templateID, buildID string, r Recipe) error
	// Get returns a build.
	Get(ctx context.Context, caller routing.KeyOwner, templateID, buildID string) (Build, error)
	// List returns the builds of a template, by its ID or name, without their logs, the newest
	// first; there is at least one.
	List(ctx context.Context, caller routing.KeyOwner, idOrName string) ([]Build, error)
	// Assign gives tags to the build that has the tag from, and returns its ID when this gateway
	// knows it by them.
	Assign(ctx context.Context, caller routing.KeyOwner, idOrName, from string, tags []string) (buildID string, err error)
	// Remove takes tags from a template, and returns when this gateway knows it by none of them.
	Remove(ctx context.Context, caller routing.KeyOwner, idOrName string, tags []string) error
	// Delete deletes all builds of a template, by its ID or name, and reports whether there
	// were any.
	Delete(ctx context.Context, caller routing.KeyOwner, idOrName string) (bool, error)
}

func noBuilds() *refusal {
	return refuse(http.StatusNotImplemented, "Building templates is not supported here: the gateways have no registry for them (--template-registry).")
}

// noSuchBuild is the answer to ErrNoBuild.
func noSuchBuild() *refusal {
	return refuse(http.StatusNotFound, "The template or build doesn't exist, or you don't have access to it")
}

// builds returns the backend, or refuses.
func (s *Server) builds() (Builds, error) {
	if s.o.Builds == nil {
		return nil, noBuilds()
	}
	return s.o.Builds, nil
}

// RequestTemplateBuild is POST /v3/templates.
func (s *Server) RequestTemplateBuild(w http.ResponseWriter, r *http.Request) {
	build, err := s.requestBuild(r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	writeJSON(w, http.StatusAccepted, api.RequestedTemplateBuild{
		TemplateID: build.TemplateID, BuildID: build.ID, Tags: build.Tags, Names: []string{build.Name}, Aliases: []string{build.Name},
	})
}

func (s *Server) requestBuild(r *http.Request) (Build, error) {
	builds, err := s.builds()
	if err != nil {
		return Build{}, err
	}
	var body api.TemplateBuildRequest
	if err := decode(r, &body); err != nil {
		return Build{}, err
	}
	request, err := buildRequest(callOf(r).owner, &body)
	if err != nil {
		return Build{}, err
	}
	if _, taken := s.o.Templates.OfPool(callOf(r).owner.Namespace, request.Name); taken {
		return Build{}, refuse(http.StatusConflict, fmt.Sprintf("name: %q is a SandboxPool that was not built here", request.Name))
	}
	return builds.Request(r.Context(), callOf(r).owner, request)
}

// buildRequest checks what a client asks for.
func buildRequest(caller routing.KeyOwner, body *api.TemplateBuildRequest) (BuildRequest, error) {
	text := ptr.Deref(body.Name, "")
	if text == "" {
		text = ptr.Deref(body.Alias, "")
	}
	ref, err := parseReference(text)
	switch {
	case err != nil:
		return BuildRequest{}, refuse(http.StatusBadRequest, "name: "+err.Error())
	case len(ref.name) > maxTemplateName || !builtName.MatchString(ref.name):
		return BuildRequest{}, refuse(http.StatusBadRequest, fmt.Sprintf("name: must have 1 to %d of a-z, 0-9, dash and underscore", maxTemplateName))
	case !ref.ofTeam(caller.Team):
		return BuildRequest{}, refuse(http.StatusBadRequest, "name: is of another team")
	}
	request := BuildRequest{Name: ref.name, CPUCount: defaultCPUs, MemoryMB: defaultMemoryMB}
	if body.CpuCount != nil {
		request.CPUCount = *body.CpuCount
	}
	if body.MemoryMB != nil {
		request.MemoryMB = *body.MemoryMB
	}
	if _, _, tagged := strings.Cut(text, ":"); tagged {
		tag := ref.tag
		if tag == "" {
			tag = defaultTag
		}
		request.Tags = append(request.Tags, tag)
	}
	if body.Tags != nil {
		var err error
		if request.Tags, err = withTags(request.Tags, *body.Tags); err != nil {
			return BuildRequest{}, err
		}
	}
	if len(request.Tags) == 0 {
		request.Tags = []string{defaultTag}
	}
	return request, nil
}

// GetTemplateFiles is GET /templates/{templateID}/files/{hash}.
func (s *Server) GetTemplateFiles(w http.ResponseWriter, r *http.Request, templateID, hash string) {
	builds, err := s.builds()
	var present bool
	var upload string
	if err == nil {
		present, upload, err = builds.Files(r.Context(), callOf(r).owner, templateID, hash)
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	// The client reached this gateway by that name, and so its upload can.
	at := url.URL{Scheme: "http", Host: r.Host, Path: "/templates/" + templateID + "/files/" + hash, RawQuery: url.Values{"upload": {upload}}.Encode()}
	if r.Header.Get("X-Forwarded-Proto") == "https" {
		at.Scheme = "https"
	}
	writeJSON(w, http.StatusCreated, api.TemplateFiles{Present: present, Url: new(at.String())})
}

// PutTemplateFiles is PUT /templates/{templateID}/files/{hash}, the one operation that reads
// its body itself: as a stream.
func (s *Server) PutTemplateFiles(w http.ResponseWriter, r *http.Request, templateID, hash string, params api.PutTemplateFilesParams) {
	builds, err := s.builds()
	if err == nil && r.ContentLength < 0 {
		err = refuse(http.StatusLengthRequired, "An upload needs a Content-Length.")
	}
	if err == nil {
		deadline := time.Now().Add(uploadTimeout)
		controller := http.NewResponseController(w)
		// Without deadlines of its own the stream has those of short requests.
		_, _ = controller.SetReadDeadline(deadline), controller.SetWriteDeadline(deadline)
		err = builds.Upload(r.Context(), params.Upload, templateID, hash, r.ContentLength, http.MaxBytesReader(w, r.Body, r.ContentLength))
	}
	if err != nil {
		w.Header().Set("Connection", "close") // the rest of the body is not read
		s.fail(w, r, err)
		return
	}
	w.WriteHeader(http.StatusOK)
}

// StartTemplateBuild is POST /v2/templates/{templateID}/builds/{buildID}.
func (s *Server) StartTemplateBuild(w http.ResponseWriter, r *http.Request, templateID, buildID string) {
	if err := s.startBuild(r, templateID, buildID); err != nil {
		s.fail(w, r, err)
		return
	}
	w.WriteHeader(http.StatusAccepted)
}

func (s *Server) startBuild(r *http.Request, templateID, buildID string) error {
	builds, err := s.builds()
	if err != nil {
		return err
	}
	var body api.TemplateBuildStart
	if err := decode(r, &body); err != nil {
		return err
	}
	recipe, err := recipeOf(callOf(r).owner, &body)
	if err != nil {
		return err
	}
	return builds.Start(r.Context(), callOf(r).owner, templateID, buildID, recipe)
}

// argsOfStep are how many arguments each type of step takes.
var argsOfStep = map[string]struct{ least, most int }{
	"RUN": {1, 2}, "COPY": {2, 4}, "ENV": {2, 256}, "WORKDIR": {1, 1}, "USER": {1, 2},
}

// recipeOf checks the body of a start.
func recipeOf(caller routing.KeyOwner, body *api.TemplateBuildStart) (Recipe, error) {
	recipe := Recipe{Image: ptr.Deref(body.FromImage, ""), Force: ptr.Deref(body.Force, false), Start: ptr.Deref(body.StartCmd, ""), Ready: ptr.Deref(body.ReadyCmd, "")}
	switch text := ptr.Deref(body.FromTemplate, ""); {
	case (text != "") == (recipe.Image != ""):
		return Recipe{}, refuse(http.StatusBadRequest, "fromImage: is required, or fromTemplate, and not both")
	case text != "":
		ref, err := parseReference(text)
		if err != nil {
			return Recipe{}, refuse(http.StatusBadRequest, "fromTemplate: "+err.Error())
		}
		if !ref.ofTeam(caller.Team) {
			return Recipe{}, refuse(http.StatusBadRequest, "fromTemplate: is of another team")
		}
		recipe.Template, recipe.Tag = ref.name, cmp.Or(ref.tag, defaultTag)
	}
	if registry := body.FromImageRegistry; registry != nil {
		if registry.Type != "registry" {
			return Recipe{}, unsupportedField("fromImageRegistry.type", "only registries with a user name and a password are supported")
		}
		recipe.Username, recipe.Password = ptr.Deref(registry.Username, ""), ptr.Deref(registry.Password, "")
	}
	if body.Steps != nil {
		for i, step := range *body.Steps {
			one := BuildStep{Type: strings.ToUpper(step.Type), Files: ptr.Deref(step.FilesHash, ""), Force: ptr.Deref(step.Force, false)}
			if step.Args != nil {
				one.Args = *step.Args
			}
			if err := checkStep(one); err != nil {
				return Recipe{}, refuse(http.StatusBadRequest, fmt.Sprintf("steps[%d]: %s", i, err))
			}
			recipe.Steps = append(recipe.Steps, one)
		}
	}
	return recipe, nil
}

func checkStep(step BuildStep) error {
	args, known := argsOfStep[step.Type]
	switch {
	case !known:
		return errors.New("there is no step of that type")
	case len(step.Args) < args.least || len(step.Args) > args.most, step.Type == "ENV" && len(step.Args)%2 != 0:
		return fmt.Errorf("%s has another number of arguments", step.Type)
	case (step.Type == "COPY") != (step.Files != ""):
		return errors.New("COPY, and nothing else, needs filesHash")
	case slices.ContainsFunc(step.Args, func(arg string) bool { return strings.Contains(arg, "\x00") }):
		return errors.New("an argument has a zero byte")
	}
	return nil
}
