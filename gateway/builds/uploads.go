package builds

import (
	"context"
	"crypto/hmac"
	"errors"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/gateway/restapi"
	"github.com/sandlane/sandlane/routing"
)

// Files implements restapi.Builds. The caller must have a build of the template, which counts the
// upload, or uploads would have no bound.
func (b *Builds) Files(ctx context.Context, caller routing.KeyOwner, template, hash string) (bool, string, error) {
	all, err := b.ofTemplate(ctx, caller, template)
	if err != nil {
		return false, "", err
	}
	var build *v1alpha1.TemplateBuild // that waits, the newest
	for i := range all {
		is := &all[i]
		if is.Spec.TemplateID != template || is.Annotations[v1alpha1.AnnotationOwner] != caller.KeyID || build != nil && before(is, build) {
			continue
		}
		build = is
	}
	if build == nil {
		return false, "", restapi.ErrNoBuild
	}
	present, err := b.o.Store.HasFiles(ctx, string(caller.NamespaceUID), template, hash)
	if err != nil {
		return false, "", err
	}
	upload := strings.Join([]string{string(caller.NamespaceUID), caller.Namespace, build.Name, strconv.FormatInt(time.Now().Add(uploadFor).Unix(), 10)}, ".")
	return present != "", upload + "." + b.signature(upload, template, hash), nil
}

func (b *Builds) signature(upload, template, hash string) string {
	return b.o.Sign(strings.Join([]string{upload, template, hash}, "/"))
}

// Upload implements restapi.Builds.
func (b *Builds) Upload(ctx context.Context, upload, template, hash string, size int64, content io.Reader) error {
	parts := strings.Split(upload, ".")
	if len(parts) != 5 || strings.Contains(template, "/") {
		return restapi.ErrUploadRefused
	}
	namespaceUID, namespace, build := parts[0], parts[1], parts[2]
	end, err := strconv.ParseInt(parts[3], 10, 64)
	if err != nil || time.Now().Unix() > end || !hmac.Equal([]byte(parts[4]), []byte(b.signature(strings.Join(parts[:4], "."), template, hash))) {
		return restapi.ErrUploadRefused
	}
	if size < 0 || size > maxUpload {
		return restapi.ErrUploadTooLarge
	}
	kept, err := b.o.Store.Upload(namespaceUID, template, hash, size)
	if err != nil {
		return err
	}
	if err := b.reserve(ctx, namespace, build, kept); err != nil {
		return err
	}
	return b.o.Store.PutFiles(ctx, namespaceUID, template, hash, &exactly{from: content, left: size})
}

// errCutUpload: the client sent less than it said.
var errCutUpload = errors.New("the upload was cut off")

// exactly reads a number of bytes, and fails if there are fewer: what is cut off must not look
// like a whole upload.
type exactly struct {
	from io.Reader
	left int64
}

func (e *exactly) Read(p []byte) (int, error) {
	n, err := e.from.Read(p)
	if e.left -= int64(n); errors.Is(err, io.EOF) && e.left > 0 {
		return n, errCutUpload
	}
	return n, err
}
