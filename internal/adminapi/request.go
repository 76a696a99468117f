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
	isLong    bool             // reads or writes a file or stream, and takes as long as that
}

// describe finds the operation of a route.
func describe(description *openapi3.T, method, path string) (*operation, error) {
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
	isFile := answer != nil && answer.Value.Headers["Content-Disposition"] != nil
	isStream := answer != nil && answer.Value.Content["text/event-stream"] != nil
	o.isLong = isFile || isStream || o.mediaType != "" && o.mediaType != jsonType
	return o, nil
}

// check holds a request to the description, as strictly as httpapi reads JSON. A JSON body is replaced
// by what was read of it.
func (o *operation) check(w http.ResponseWriter, r *http.Request) error {
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
		return httpapi.InvalidRequest.Problem("Correct the address where errors points; nothing was done.", wrong...)
	}
	switch o.mediaType {
	case "":
		return nil
	case jsonType:
		return o.checkJSON(w, r)
	}
	return o.checkFile(w, r)
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

func (o *operation) checkJSON(w http.ResponseWriter, r *http.Request) error {
	var body bytes.Buffer
	if err := httpapi.ReadBody(w, r, maxJSON, &body); err != nil {
		return err
	}
	var value any
	if err := httpapi.Decode(body.Bytes(), &value); err != nil {
		return err
	}
	if err := httpapi.BodyProblem(mismatches(o.schema, value)); err != nil {
		return err
	}
	r.Body = http.NoBody
	if body.Len() > 0 {
		r.Body = readOnce{bytes.NewReader(body.Bytes())}
	}
	return nil
}

// checkFile leaves the body to be read as a stream.
func (o *operation) checkFile(w http.ResponseWriter, r *http.Request) error {
	mediaType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	encoding := r.Header.Get("Content-Encoding")
	if err != nil || mediaType != o.mediaType || encoding != "" && encoding != "identity" {
		return httpapi.WrongMediaType.Problem("Send the body uncompressed, with Content-Type: " + o.mediaType + ".")
	}
	if r.ContentLength > maxFile {
		return &http.MaxBytesError{Limit: maxFile}
	}
	allowTime(w)
	r.Body = http.MaxBytesReader(w, r.Body, maxFile)
	return nil
}

type readOnce struct{ *bytes.Reader }

func (readOnce) Close() error { return nil }

// mismatches are where a value is not what its schema says.
func mismatches(schema *openapi3.Schema, value any) []httpapi.FieldError {
	return flatten(nil, schema.VisitJSON(value, openapi3.MultiErrors(), openapi3.EnableFormatValidation()))
}

func flatten(found []httpapi.FieldError, err error) []httpapi.FieldError {
	switch err := err.(type) { //nolint:errorlint // the validator documents these two types, and wraps neither
	case nil:
	case openapi3.MultiError:
		for _, one := range err {
			found = flatten(found, one)
		}
	case *openapi3.SchemaError:
		found = append(found, fieldError(err))
	default:
		found = append(found, httpapi.FieldError{Detail: "is not as the API's description says"})
	}
	return found
}

// fieldError tells what the validator found in the words of the other problems.
func fieldError(err *openapi3.SchemaError) httpapi.FieldError {
	path := err.JSONPointer()
	detail := err.Reason
	switch err.SchemaField {
	case "properties":
		// The validator names an unknown field in its text only.
		if _, name, ok := strings.Cut(err.Reason, "property "); ok {
			if unquoted, unquoteErr := strconv.QuotedPrefix(name); unquoteErr == nil {
				name, _ = strconv.Unquote(unquoted)
				path = append(path, name)
			}
		}
		detail = "is not a known field; remove it"
	case "required":
		detail = "is missing"
	case "type":
		detail = "must be of the type " + strings.Join(err.Schema.Type.Slice(), " or ")
	}
	var pointer strings.Builder
	for _, name := range path {
		pointer.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name))
	}
	return httpapi.FieldError{Pointer: pointer.String(), Detail: detail}
}
