package restapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"

	"github.com/sandlane/sandlane/gateway/restapi/routes"
)

var validation = &openapi3filter.Options{
	// authenticate has done it.
	AuthenticationFunc: openapi3filter.NoopAuthenticationFunc,
	// Handlers know the defaults; a body stays as it was sent.
	SkipSettingDefaults: true,
}

// validate checks parameters and body against openapi.yaml.
func (s *Server) validate(r *http.Request, c *call) error {
	if err := validateQuery(r, c.route); err != nil {
		return err
	}
	err := openapi3filter.ValidateRequest(r.Context(), &openapi3filter.RequestValidationInput{
		Request:    r,
		PathParams: c.params,
		Route: &routers.Route{
			Spec: s.router.Doc, Path: c.route.Path, PathItem: c.route.Item,
			Method: c.route.Method, Operation: c.route.Operation,
		},
		Options: validation,
	})
	if err != nil {
		return refuse(http.StatusBadRequest, describe(err))
	}
	if asksForMore(r, c.route.Operation) {
		s.metrics.unsupported.WithLabelValues(c.route.Name(), otherField).Inc()
	}
	return nil
}

// asksForMore reports whether the request has a field or a query parameter that openapi.yaml
// does not name. It reads the validated body, and leaves it there.
func asksForMore(r *http.Request, op *openapi3.Operation) bool {
	for name := range r.URL.Query() {
		if op.Parameters.GetByInAndName(openapi3.ParameterInQuery, name) == nil {
			return true
		}
	}
	if op.RequestBody == nil {
		return false
	}
	data, err := io.ReadAll(r.Body)
	if err != nil {
		return false // the handler meets the same error
	}
	r.Body = io.NopCloser(bytes.NewReader(data))
	var body any
	if json.Unmarshal(data, &body) != nil {
		return false
	}
	return hasMore(op.RequestBody.Value.Content.Get("application/json").Schema.Value, body)
}

// hasMore reports whether value has a field that the schema does not name, at any depth.
func hasMore(schema *openapi3.Schema, value any) bool {
	fields, ok := value.(map[string]any)
	named := properties(schema)
	if !ok || len(named) == 0 { // no object, or one of free names
		return false
	}
	for name, value := range fields {
		if property, ok := named[name]; !ok || hasMore(property.Value, value) {
			return true
		}
	}
	return false
}

// properties are those of a schema and of all that it is made of.
func properties(schema *openapi3.Schema) openapi3.Schemas {
	all := maps.Clone(schema.Properties)
	for _, part := range schema.AllOf {
		if all == nil {
			all = openapi3.Schemas{}
		}
		maps.Copy(all, properties(part.Value))
	}
	return all
}

// validateQuery refuses a query of which net/http would leave out a part. Without its filter
// a list would show, and its client perhaps end, sandboxes that were not meant.
func validateQuery(r *http.Request, rt *routes.Route) error {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return refuse(http.StatusBadRequest, "The query cannot be parsed: it has an escape that is none, or a semicolon that is not escaped.")
	}
	for _, p := range rt.Operation.Parameters {
		if p.Value.In == openapi3.ParameterInQuery && len(query[p.Value.Name]) > 1 {
			return refuse(http.StatusBadRequest, p.Value.Name+": must be there once")
		}
	}
	return nil
}

// describe says what is wrong and where. It does not repeat the wrong value, which
// may be a secret.
func describe(err error) string {
	var request *openapi3filter.RequestError
	var schema *openapi3.SchemaError
	where, what := "request", "is not valid"
	if errors.As(err, &request) {
		switch {
		case request.Parameter != nil:
			where = request.Parameter.Name
		case request.RequestBody != nil:
			where = "body"
		}
		if errors.Is(err, openapi3filter.ErrInvalidRequired) {
			what = "is required"
		} else if strings.Contains(request.Reason, "Content-Type") {
			what = "must have the Content-Type application/json"
		}
	}
	// The innermost says most: around it are the schemas that it is a part of.
	var path []string
	for ; errors.As(err, &schema); err = schema.Origin {
		path, what = append(path, schema.JSONPointer()...), schema.Reason
	}
	if len(path) > 0 && where == "body" {
		where = strings.Join(path, ".")
	}
	return where + ": " + what
}
