package restapi

import (
	"net/http"

	"github.com/sandlane/sandlane/gateway/restapi/api"
)

// setLifecycle writes into a sandbox that is to be made what becomes of it at its timeout:
// what the client asks for, and what the template says where the client says nothing.
func (s *Server) setLifecycle(sandbox *NewSandbox, n *api.NewSandbox, t Template) error {
	noMemory := is(n.AutoPauseMemory, false)
	files := noMemory || n.AutoPause == nil && n.AutoPauseMemory == nil && t.AutoPauseFiles && t.Hibernates
	sandbox.AutoPause = is(n.AutoPause, true) || n.AutoPause == nil && t.AutoPause && (t.Pausable || files)
	sandbox.AutoPauseFiles = files
	switch {
	case noMemory && !sandbox.AutoPause:
		return refuse(http.StatusBadRequest, "autoPauseMemory: the sandbox is not paused at its timeout; set autoPause to true, or leave autoPauseMemory out")
	case noMemory && s.o.Snapshots == nil:
		return noStore()
	case noMemory && !t.Hibernates:
		return refuse(http.StatusBadRequest, "autoPauseMemory: sandboxes of this template cannot be paused without their memory; leave it out or set it to true")
	case sandbox.AutoPause && !files && !t.Pausable:
		return refuse(http.StatusBadRequest, "autoPause: sandboxes of this template cannot be paused; leave it out or set it to false")
	case !sandbox.AutoPause:
		return nil
	}
	sandbox.AutoResume = autoResumes(n) || n.AutoResume == nil && t.AutoResume
	// E2B resumes nothing without its memory by a request. Where the pool's operator does,
	// that holds for each sandbox whose client does not switch the resume off.
	sandbox.AutoResumeFiles = sandbox.AutoResume && t.AutoResumeFiles
	if files {
		sandbox.AutoResume = sandbox.AutoResumeFiles
	}
	return nil
}
