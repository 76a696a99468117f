package adminapi

import (
	"bytes"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/sluicegate/sluice/api"
	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/httpapi"
)

const (
	maxJSON = 1 << 20
	maxFile = 8 << 20 // CSV and YAML
	// maxAnonymous is far above what anonymous callers need, and cheap to read.
	maxAnonymous = 8 << 10
)

const jsonType = "application/json"

// readDescription takes some 50 ms, once per process; nobody changes the result.
var readDescription = sync.OnceValues(func() (*openapi3.T, error) {
	description, err := openapi3.NewLoader().LoadFromData(api.Description)
	if err != nil {
		return nil, fmt.Errorf("read openapi.yaml: %w", err)
	}
	return description, nil
})

type operation struct {
	query      map[string]*openapi3.Parameter
	mediaType  string           // of the body; "" for none
	schema     *openapi3.Schema // of a JSON body
	maxBody    int64            // in bytes
	permission auth.Permission
	fresh      freshProof
	isFile     bool // the answer is a file
	isStream   bool // the answer is a stream
	anyQuery   bool // others choose the parameters
	takesKey   bool // it has the parameter Idempotency-Key
	needsMatch bool // it requires the parameter If-Match
	// hasDryRun: a key that may only read may have it in a dry run.
	hasDryRun bool
}

func describe(description *openapi3.T, method, path string, least access) (o *operation, err error) {
	item := description.Paths.Value(path)
	if item == nil || item.GetOperation(method) == nil {
		return nil, fmt.Errorf("openapi.yaml does not describe %s %s", method, path)
	}
	described := item.GetOperation(method)
	o = &operation{query: map[string]*openapi3.Parameter{}}
	if permission, ok := described.Extensions["x-permission"].(string); ok {
		o.permission = auth.Permission(permission)
	}
	o.fresh, err = readFreshProof(described.Extensions["x-fresh-proof"])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", described.OperationID, err)
	}
	_, o.anyQuery = described.Extensions["x-any-query"]
	for _, parameter := range slices.Concat(item.Parameters, described.Parameters) {
		if parameter.Value.In == openapi3.ParameterInQuery {
			o.query[parameter.Value.Name] = parameter.Value
		}
		o.takesKey = o.takesKey || parameter.Value.Name == idempotencyHeader
		o.needsMatch = o.needsMatch || parameter.Value.Name == "If-Match" && parameter.Value.Required
	}
	if described.RequestBody != nil {
		for mediaType, content := range described.RequestBody.Value.Content {
			o.mediaType, o.schema = mediaType, content.Schema.Value
		}
	}
	o.hasDryRun = o.query["dry_run"] != nil || o.schema != nil && o.schema.Properties["dry_run"] != nil
	answer := described.Responses.Status(http.StatusOK)
	o.isFile = answer != nil && answer.Value.Headers["Content-Disposition"] != nil
	o.isStream = answer != nil && answer.Value.Content["text/event-stream"] != nil
	switch {
	case least == anyone:
		o.maxBody = maxAnonymous
	case o.isUpload():
		o.maxBody = maxFile
	default:
		o.maxBody = maxJSON
	}
	return o, nil
}

func (o *operation) isLong() bool { return o.isFile || o.isStream || o.isUpload() }

func (o *operation) isUpload() bool { return o.mediaType != "" && o.mediaType != jsonType }

func (o *operation) checkAddress(r *http.Request) error {
	wrong, err := o.checkQuery(r.URL.RawQuery)
	if err != nil {
		return err
	}
	for name, value := range pathParams(r) {
		if fault := wrongText(value); fault != "" {
			wrong = append(wrong, httpapi.FieldError{Pointer: "/path/" + name, Detail: fault})
		}
	}
	if len(wrong) > 0 {
		return httpapi.InvalidRequest.Problem("Correct the parameters listed in errors; nothing was done.",
			wrong[:min(len(wrong), httpapi.MaxFieldErrors)]...)
	}
	return nil
}

func (o *operation) read(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	var body bytes.Buffer
	var err error
	switch o.mediaType {
	case "":
	case jsonType:
		err = httpapi.ReadBody(w, r, o.maxBody, &body)
	default:
		err = o.readFile(w, r, &body)
	}
	return body.Bytes(), err
}

// decodeBody validates a JSON body, and gives the bytes back to the request for its handler.
func (o *operation) decodeBody(r *http.Request, body []byte) (value any, err error) {
	if o.mediaType == "" {
		return nil, nil
	}
	if o.mediaType == jsonType {
		if err := httpapi.Decode(body, &value); err != nil {
			return nil, err
		}
		if err := httpapi.BodyProblem(mismatches(o.schema, value)); err != nil {
			return nil, err
		}
	}
	r.Body = http.NoBody
	if len(body) > 0 {
		r.Body = readOnce{bytes.NewReader(body)}
	}
	return value, nil
}

func (o *operation) checkQuery(raw string) ([]httpapi.FieldError, error) {
	if o.anyQuery {
		return nil, nil
	}
	query, err := url.ParseQuery(raw)
	if err != nil {
		return nil, httpapi.InvalidRequest.Problem("Write the query as name=value, joined by & and percent-encoded.")
	}
	var wrong []httpapi.FieldError
	for _, name := range slices.Sorted(maps.Keys(o.query)) {
		if o.query[name].Required && !query.Has(name) {
			wrong = append(wrong, httpapi.FieldError{Pointer: "/query/" + name, Detail: "is missing"})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		if len(wrong) >= httpapi.MaxFieldErrors {
			break
		}
		parameter := o.query[name]
		fault := ""
		switch {
		case parameter == nil && len(o.query) == 0:
			fault = "is not known; there are no query parameters here"
		case parameter == nil:
			fault = "is not known; the parameters are " + strings.Join(slices.Sorted(maps.Keys(o.query)), ", ")
		case len(query[name]) > 1:
			fault = "is given twice; send it once"
		default:
			fault = wrongParameter(parameter.Schema.Value, query.Get(name))
		}
		if fault != "" {
			wrong = append(wrong, httpapi.FieldError{
				Pointer: "/query/" + strings.ToValidUTF8(name, "\uFFFD"),
				Detail:  fault,
			})
		}
	}
	return wrong, nil
}

func wrongParameter(schema *openapi3.Schema, text string) string {
	if fault := wrongText(text); fault != "" {
		return fault
	}
	var value any = text
	switch {
	case schema.Type.Is(openapi3.TypeInteger):
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return "must be a whole number"
		}
		value = float64(n)
	case schema.Type.Is(openapi3.TypeBoolean):
		if text != "true" && text != "false" {
			return "must be true or false"
		}
		value = text == "true"
	}
	if wrong := mismatches(schema, value); len(wrong) > 0 {
		return wrong[0].Detail
	}
	return ""
}

func wrongText(text string) string {
	switch {
	case !utf8.ValidString(text):
		return "must be UTF-8"
	case strings.IndexByte(text, 0) >= 0:
		return "contains the character NUL; remove it"
	}
	return ""
}

func (o *operation) readFile(w http.ResponseWriter, r *http.Request, body *bytes.Buffer) error {
	mediaType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	encoding := r.Header.Get("Content-Encoding")
	if err != nil || mediaType != o.mediaType || encoding != "" && encoding != "identity" {
		return httpapi.WrongMediaType.Problem("Send the body uncompressed, with Content-Type: " + o.mediaType + ".")
	}
	allowTime(w)
	return httpapi.ReadFile(w, r, o.maxBody, body)
}

type readOnce struct{ *bytes.Reader }

func (readOnce) Close() error { return nil }

func mismatches(schema *openapi3.Schema, value any) []httpapi.FieldError {
	var found mistakes
	found.check(schema, value, nil)
	return found
}

// mistakes asks the validator about single values only, which alone would collect all of the hundred thousand errors
// that fit into a body.
type mistakes []httpapi.FieldError

func (m *mistakes) isFull() bool { return len(*m) >= httpapi.MaxFieldErrors }

func (m *mistakes) add(path []string, detail string) {
	if !m.isFull() {
		*m = append(*m, httpapi.FieldError{Pointer: pointerTo(path), Detail: detail})
	}
}

func (m *mistakes) check(schema *openapi3.Schema, value any, path []string) {
	switch value := value.(type) {
	case map[string]any:
		if schema.Type.Is(openapi3.TypeObject) && !isComposed(schema) {
			m.checkObject(schema, value, path)
			return
		}
	case []any:
		if schema.Type.Is(openapi3.TypeArray) && !isComposed(schema) {
			m.checkArray(schema, value, path)
			return
		}
	}
	m.judge(schema, value, path)
}

// isComposed reports whether a value must be judged as a whole.
func isComposed(schema *openapi3.Schema) bool {
	return len(schema.AllOf)+len(schema.AnyOf)+len(schema.OneOf) > 0 || schema.Not != nil || schema.Enum != nil ||
		schema.MinProps > 0
}

func (m *mistakes) checkObject(schema *openapi3.Schema, object map[string]any, path []string) {
	if most := schema.MaxProps; most != nil && uint64(len(object)) > *most {
		m.add(path, fmt.Sprintf("must have at most %d fields", *most))
		return
	}
	for _, name := range schema.Required {
		if _, given := object[name]; !given {
			m.add(append(path, name), "is missing")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(object)) {
		if m.isFull() {
			return
		}
		others := schema.AdditionalProperties
		switch field := schema.Properties[name]; {
		case field != nil:
			m.check(field.Value, object[name], append(path, name))
		case others.Has != nil && !*others.Has:
			m.add(append(path, name), "is not a known field; remove it")
		case others.Schema != nil:
			m.check(others.Schema.Value, object[name], append(path, name))
		}
	}
}

func (m *mistakes) checkArray(schema *openapi3.Schema, array []any, path []string) {
	if most := schema.MaxItems; most != nil && uint64(len(array)) > *most {
		m.add(path, fmt.Sprintf("must have at most %d items", *most))
		return
	}
	whole := *schema
	whole.Items = nil
	m.judge(&whole, array, path)
	if schema.Items == nil {
		return
	}
	for i, item := range array {
		if m.isFull() {
			return
		}
		m.check(schema.Items.Value, item, append(path, strconv.Itoa(i)))
	}
}

func (m *mistakes) judge(schema *openapi3.Schema, value any, path []string) {
	err := schema.VisitJSON(value, openapi3.EnableFormatValidation())
	if err == nil {
		return
	}
	//nolint:errorlint // the validator returns this type unwrapped, as documented
	wrong, ok := err.(*openapi3.SchemaError)
	if !ok {
		m.add(path, "does not match the API's description")
		return
	}
	detail := wrong.Reason
	switch wrong.SchemaField {
	case "properties":
		detail = "has a field that is not known; remove it"
	case "required":
		detail = "is missing"
	case "type":
		detail = "must be of the type " + strings.Join(wrong.Schema.Type.Slice(), " or ")
	}
	m.add(append(path, wrong.JSONPointer()...), detail)
}

func pointerTo(path []string) string {
	var pointer strings.Builder
	for _, name := range path {
		pointer.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name))
	}
	return pointer.String()
}
