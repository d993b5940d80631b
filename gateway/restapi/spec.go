package restapi

import (
	_ "embed" // for openapi.yaml
	"fmt"
	"slices"
	"sync"

	"github.com/getkin/kin-openapi/openapi3"
)

//go:embed openapi.yaml
var specYAML []byte

// tagUnsupported marks the operations that are answered with 501.
const tagUnsupported = "unsupported"

// tagStreamed marks the operations that read their body themselves.
const tagStreamed = "streamed"

func isStreamed(op *openapi3.Operation) bool { return slices.Contains(op.Tags, tagStreamed) }

// spec returns the document; it is read once and not written to.
var spec = sync.OnceValues(func() (*openapi3.T, error) {
	loader := openapi3.NewLoader()
	doc, err := loader.LoadFromData(specYAML)
	if err != nil {
		return nil, fmt.Errorf("read openapi.yaml: %w", err)
	}
	if err := doc.Validate(loader.Context); err != nil {
		return nil, fmt.Errorf("openapi.yaml: %w", err)
	}
	return doc, nil
})

func isUnsupported(op *openapi3.Operation) bool { return slices.Contains(op.Tags, tagUnsupported) }

// needsKey reports whether an operation asks for an API key: all do that do not
// say otherwise.
func needsKey(op *openapi3.Operation) bool { return op.Security == nil || len(*op.Security) > 0 }
