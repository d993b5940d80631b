package access

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/sandlane/sandlane/sandboxd/identity"
)

// signatureHeader carries the signature of /init, or of an order, in base64.
const signatureHeader = "Sandlane-Init-Signature"

const maxInitBody = 4 << 20

// Challenge serves GET /init: it answers the nonce that the signature of POST /init must
// include. Each process of sandboxd has a random nonce of its own, so that a request that
// was signed before a restart is refused after it. The answer also has the ID of a completed
// restore, so that a gateway can continue what another gateway began.
func (s *State) Challenge(w http.ResponseWriter, _ *http.Request) {
	answer := map[string]string{"nonce": s.nonce}
	if s.options.Restored != nil {
		if id := s.options.Restored(); id != "" {
			answer["restored"] = id
		}
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(answer)
}

// Init serves POST /init.
func (s *State) Init(w http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxInitBody))
	if err != nil {
		Error(w, http.StatusBadRequest, "invalid body: "+err.Error())
		return
	}
	if !s.signed(r.Header, text) {
		Error(w, http.StatusUnauthorized, "unauthorized access, /init is for the control plane only")
		return
	}
	var body struct {
		claim
		Timestamp time.Time `json:"timestamp"`
		// CABundle may differ when the call is repeated: it may have been rotated.
		CABundle string `json:"caBundle"`
	}
	if len(text) > 0 {
		if err := json.Unmarshal(text, &body); err != nil {
			Error(w, http.StatusBadRequest, "invalid body: "+err.Error())
			return
		}
	}
	if body.DefaultUser != "" {
		if _, err := s.options.Users.Lookup(body.DefaultUser); err != nil {
			Error(w, http.StatusBadRequest, err.Error())
			return
		}
	}
	if err := s.init(body.claim, body.Timestamp); err != nil {
		Error(w, http.StatusConflict, err.Error())
		return
	}
	if body.CABundle != "" && s.options.Trust != nil {
		s.options.Trust([]byte(body.CABundle))
	}
	w.WriteHeader(http.StatusNoContent)
}

// signed reports whether a gateway has signed this /init for this pod and this
// process. Without a key to check it by every /init counts as signed.
func (s *State) signed(header http.Header, body []byte) bool {
	return s.options.InitKey == nil || s.verify(header, s.initMessage(header, body))
}

// verify reports whether the header has a gateway's signature of the message.
func (s *State) verify(header http.Header, message []byte) bool {
	signature, err := base64.StdEncoding.DecodeString(header.Get(signatureHeader))
	return err == nil && ed25519.Verify(s.options.InitKey, message, signature)
}

// initMessage returns the message that is signed for /init; gateway/sandboxdclient signs the same
// message.
func (s *State) initMessage(header http.Header, body []byte) []byte {
	return fmt.Appendf(nil, "sandlane init 1\n%q\n%q\n%q\n%q\n%x\n",
		s.options.PodUID, s.nonce, header.Get(identity.SandboxHeader), header.Get(identity.TemplateHeader), sha256.Sum256(body))
}

// errInitKey: the public key of /init cannot be parsed.
var errInitKey = errors.New("the public key of /init is not 32 bytes in base64")

// ParseInitKey reads the public key of /init.
func ParseInitKey(text string) (ed25519.PublicKey, error) {
	key, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(key) != ed25519.PublicKeySize {
		return nil, errInitKey
	}
	return key, nil
}
