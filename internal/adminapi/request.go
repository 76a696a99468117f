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
	"github.com/sluicegate/sluice/internal/httpapi"
)

// The largest bodies.
const (
	maxJSON = 1 << 20
	maxFile = 8 << 20 // CSV and YAML
	// maxAnonymous is for who need not say who they are: the longest of what those may send is far below
	// it, and nobody else can be held to account for what reading it costs.
	maxAnonymous = 8 << 10
)

const jsonType = "application/json"

// readDescription reads it once in a process, which takes some 50 ms; nothing changes it afterwards.
var readDescription = sync.OnceValues(func() (*openapi3.T, error) {
	description, err := openapi3.NewLoader().LoadFromData(api.Description)
	if err != nil {
		return nil, fmt.Errorf("read openapi.yaml: %w", err)
	}
	return description, nil
})

// operation is what openapi.yaml says of the requests for one.
type operation struct {
	query     map[string]*openapi3.Parameter
	mediaType string           // of the body; "" for none
	schema    *openapi3.Schema // of a JSON body
	maxBody   int64            // in bytes
	isFile    bool             // the answer is a file
	isStream  bool             // the answer is a stream
}

// describe finds the operation of a route, which at least such a caller may call.
func describe(description *openapi3.T, method, path string, least access) (*operation, error) {
	item := description.Paths.Value(path)
	if item == nil || item.GetOperation(method) == nil {
		return nil, fmt.Errorf("openapi.yaml does not describe %s %s", method, path)
	}
	described := item.GetOperation(method)
	o := &operation{query: map[string]*openapi3.Parameter{}}
	for _, parameter := range slices.Concat(item.Parameters, described.Parameters) {
		if parameter.Value.In == openapi3.ParameterInQuery {
			o.query[parameter.Value.Name] = parameter.Value
		}
	}
	if described.RequestBody != nil {
		for mediaType, content := range described.RequestBody.Value.Content {
			o.mediaType, o.schema = mediaType, content.Schema.Value
		}
	}
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

// isLong says that it takes as long as its file or stream.
func (o *operation) isLong() bool { return o.isFile || o.isStream || o.isUpload() }

// isUpload says that the body is a file, which may take long to come.
func (o *operation) isUpload() bool { return o.mediaType != "" && o.mediaType != jsonType }

// checkAddress compares a request's path and query with the description.
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
		return httpapi.InvalidRequest.Problem("Correct the address where errors points; nothing was done.",
			wrong[:min(len(wrong), httpapi.MaxFieldErrors)]...)
	}
	return nil
}

// read reads the body to its end, if the operation has one.
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

// checkBody compares a JSON body with the description, as strictly as httpapi reads JSON. What is wrong in a file is
// for the handler to say. The request's body becomes what was read of it.
func (o *operation) checkBody(r *http.Request, body []byte) error {
	if o.mediaType == "" {
		return nil
	}
	if o.mediaType == jsonType {
		var value any
		if err := httpapi.Decode(body, &value); err != nil {
			return err
		}
		if err := httpapi.BodyProblem(mismatches(o.schema, value)); err != nil {
			return err
		}
	}
	r.Body = http.NoBody
	if len(body) > 0 {
		r.Body = readOnce{bytes.NewReader(body)}
	}
	return nil
}

func (o *operation) checkQuery(raw string) ([]httpapi.FieldError, error) {
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
			wrong = append(wrong, httpapi.FieldError{Pointer: "/query/" + strings.ToValidUTF8(name, "\uFFFD"), Detail: fault})
		}
	}
	return wrong, nil
}

// wrongParameter says what is wrong with a query parameter, or "".
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

// wrongText says what is wrong with a text that comes by way of an address.
func wrongText(text string) string {
	switch {
	case !utf8.ValidString(text):
		return "must be UTF-8"
	case strings.IndexByte(text, 0) >= 0:
		return "contains the character NUL; remove it"
	}
	return ""
}

// readFile reads all of a file before anything in it takes effect.
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

// mismatches are where a value is not what its schema says, the first httpapi.MaxFieldErrors of them.
func mismatches(schema *openapi3.Schema, value any) []httpapi.FieldError {
	var found mistakes
	found.check(schema, value, nil)
	return found
}

// mistakes are found by going through objects and arrays here, and asking the validator for single values
// only. By itself it would make an error of each of the hundred thousand mistakes that fit into a body
// before it told of any, at many times the body's size.
type mistakes []httpapi.FieldError

func (m *mistakes) isFull() bool { return len(*m) >= httpapi.MaxFieldErrors }

func (m *mistakes) add(place []string, detail string) {
	if !m.isFull() {
		*m = append(*m, httpapi.FieldError{Pointer: pointerTo(place), Detail: detail})
	}
}

func (m *mistakes) check(schema *openapi3.Schema, value any, place []string) {
	switch value := value.(type) {
	case map[string]any:
		if schema.Type.Is(openapi3.TypeObject) && !isComposed(schema) {
			m.checkObject(schema, value, place)
			return
		}
	case []any:
		if schema.Type.Is(openapi3.TypeArray) && !isComposed(schema) {
			m.checkArray(schema, value, place)
			return
		}
	}
	m.judge(schema, value, place)
}

// isComposed says that a schema is more than its fields or items; what is in it is judged as a whole.
func isComposed(schema *openapi3.Schema) bool {
	return len(schema.AllOf)+len(schema.AnyOf)+len(schema.OneOf) > 0 || schema.Not != nil || schema.Enum != nil || schema.MinProps > 0
}

func (m *mistakes) checkObject(schema *openapi3.Schema, object map[string]any, place []string) {
	if most := schema.MaxProps; most != nil && uint64(len(object)) > *most {
		m.add(place, fmt.Sprintf("must have at most %d fields", *most))
		return
	}
	for _, name := range schema.Required {
		if _, given := object[name]; !given {
			m.add(append(place, name), "is missing")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(object)) {
		if m.isFull() {
			return
		}
		others := schema.AdditionalProperties
		switch field := schema.Properties[name]; {
		case field != nil:
			m.check(field.Value, object[name], append(place, name))
		case others.Has != nil && !*others.Has:
			m.add(append(place, name), "is not a known field; remove it")
		case others.Schema != nil:
			m.check(others.Schema.Value, object[name], append(place, name))
		}
	}
}

func (m *mistakes) checkArray(schema *openapi3.Schema, array []any, place []string) {
	if most := schema.MaxItems; most != nil && uint64(len(array)) > *most {
		m.add(place, fmt.Sprintf("must have at most %d items", *most))
		return
	}
	whole := *schema
	whole.Items = nil
	m.judge(&whole, array, place)
	if schema.Items == nil {
		return
	}
	for i, item := range array {
		if m.isFull() {
			return
		}
		m.check(schema.Items.Value, item, append(place, strconv.Itoa(i)))
	}
}

// judge asks the validator.
func (m *mistakes) judge(schema *openapi3.Schema, value any, place []string) {
	err := schema.VisitJSON(value, openapi3.EnableFormatValidation())
	if err == nil {
		return
	}
	wrong, ok := err.(*openapi3.SchemaError) //nolint:errorlint // the validator documents this type, and does not wrap it
	if !ok {
		m.add(place, "is not as the API's description says")
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
	m.add(append(place, wrong.JSONPointer()...), detail)
}

func pointerTo(place []string) string {
	var pointer strings.Builder
	for _, name := range place {
		pointer.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name))
	}
	return pointer.String()
}
